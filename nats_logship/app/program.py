"""How every program begins and ends: its version, its log, and one line and an exit code for whatever stops it."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from nats_logship.app.configuration import ProgramSettings
from nats_logship.app.exits import ConfigurationError, Exit, OperatorError
from nats_logship.app.logs import FORMATS, JsonLines, LogHandler, graded, is_journal
from nats_logship.app.secret_files import readable_by_others
from nats_logship.app.text import printable

logger = logging.getLogger(__name__)


def run(
    command: click.Command,
    arguments: Sequence[str],
    others: Callable[[], Sequence[str]] = tuple,
) -> None:
    """Run a command line and exit with its code; an error that a person must mend is one line on stderr.

    Adds `--version`, which also shows the versions of what the program runs, as `others` returns them, and `-h`. SIGTERM ends
    the program in order from now on, until it handles the signal itself: with code 1 where `--once` asked for all at once.
    """
    end_on_sigterm(Exit.FAILED if "--once" in arguments else Exit.DONE)
    program = command.name or "logship"
    versioned = _version_option(program, others)(command)
    options: dict[str, Any] = {"standalone_mode": False, "help_option_names": ["-h", "--help"]}
    sys.exit(_code_of(lambda: versioned.main(arguments, program, **options), program))


def version_of(package: str) -> str:
    """Return the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _version_option(
    program: str, others: Callable[[], Sequence[str]]
) -> Callable[[click.Command], click.Command]:
    def show(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
        if wanted:
            click.echo("\n".join([f"{program} {version_of('nats-logship')}", *others()]))
            context.exit()

    return click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show the versions of the program and of what it runs.",
    )


def end_on_sigterm(code: Exit) -> None:
    """Have SIGTERM end this program with that code from now on, in whatever it comes."""
    signal.signal(signal.SIGTERM, lambda *_: _end(code))


def _end(code: Exit) -> None:
    # one that follows, as `timeout` sends it to the group as well, must not break into the tidying up of the first
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)


def _code_of(call: Callable[[], object], program: str) -> int:
    try:
        with _naming_the_removed_directory():
            result = call()
    except click.Abort:
        return 130
    except click.UsageError as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            click.echo(error.format_message(), err=True)  # the whole help, as no command was given
        else:
            asked = error.ctx.command_path if error.ctx else program
            _say(program, f"{error.format_message()} (see {asked} --help)")
        return Exit.USAGE
    except click.ClickException as error:
        _say(program, error.format_message())
        return error.exit_code
    except OperatorError as error:
        _say(program, str(error))
        return error.code
    except BrokenPipeError:
        return Exit.FAILED  # whoever read our output went away; that's fine, they wanted no more
    return result if isinstance(result, int) else Exit.DONE


@contextmanager
def _naming_the_removed_directory() -> Iterator[None]:
    """Raise `ConfigurationError` for a relative path in a current directory that was removed."""
    try:
        yield
    except FileNotFoundError:
        if _has_current_directory():
            raise
        raise ConfigurationError(
            "the current directory was removed; cd to one that exists, or give absolute paths"
        ) from None


def _has_current_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _say(program: str, message: str) -> None:
    if any(isinstance(handler.formatter, JsonLines) for handler in logging.root.handlers):
        logging.getLogger(program).critical("%s", message)
    else:
        line = f"{program}: {printable(message)}"
        is_graded = is_journal(sys.stderr, os.environ)
        click.echo(graded(logging.ERROR, line) if is_graded else line, err=True)


def log_to_stderr(settings: ProgramSettings) -> None:
    """Send this program's log to stderr, as much of it and in the form that the settings say.

    Warns of secrets that everybody may read. May be called again.
    """
    handler = LogHandler(sys.stderr, os.environ)
    handler.setFormatter(FORMATS[settings.log_format]())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # what it reports reaches us as errors and is said once there
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    # it warns at each connection with TLS that a server ends, since nats-py hands it a protocol that is made for none
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    warn_of_readable_secrets(settings.secret_files)


def warn_of_readable_secrets(secrets: Iterable[Path]) -> None:
    """Log those of the files that every user of this machine may read."""
    for path in readable_by_others(secrets):
        words = "%s holds a secret and can be read by everybody on this machine; chmod 600 it"
        logger.warning(words, path)
