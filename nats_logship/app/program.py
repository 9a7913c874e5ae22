"""Starts and ends a program: `--version`, the log, and one line and an exit code for each error."""

import errno
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from nats_logship.app.configuration import ProgramSettings
from nats_logship.app.exits import Exit, OperatorError
from nats_logship.app.logs import FORMATS, JsonLines, LogHandler, add_priority, is_journal
from nats_logship.app.secret_files import readable_by_others
from nats_logship.app.signals import raise_on_interrupt
from nats_logship.app.text import printable

_NO_FOLDER = "the current directory was removed; cd to one that exists, or give absolute paths"
_FULL = {errno.ENOSPC, errno.EDQUOT}
logger = logging.getLogger(__name__)


def run(
    command: click.Command,
    arguments: Sequence[str],
    others: Callable[[], Sequence[str]] = tuple,
    given: object = None,
) -> None:
    """Run a command line and exit with its code; an error is one line on stderr.

    The command finds what is `given` in its context. Adds `-h` and `--version`, which also prints
    the lines of `others`. Until the program handles SIGTERM itself, it ends by SIGTERM: with code 1
    after `--once`, as not everything was done.
    """
    raise_on_interrupt()
    end_on_sigterm(Exit.FAILED if "--once" in arguments else Exit.DONE)
    program = command.name or "logship"
    versioned = _version_option(program, others)(command)
    options: dict[str, Any] = {"standalone_mode": False, "help_option_names": ["-h", "--help"]}
    sys.exit(_exit_code(lambda: versioned.main(arguments, program, obj=given, **options), program))


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
    """Have SIGTERM end this program with that code from now on."""
    signal.signal(signal.SIGTERM, lambda *_: _end(code))


def _end(code: Exit) -> None:
    # a second one, which `timeout` sends to the whole group, must not interrupt cleaning up
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)


def _exit_code(call: Callable[[], object], program: str) -> int:
    try:
        result = call()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)  # the whole help
        return Exit.USAGE
    except click.Abort:
        return 130
    except (click.ClickException, OperatorError, FileNotFoundError) as error:
        return _report(error, program)
    except BrokenPipeError:
        return Exit.FAILED  # the reader of our output wants no more
    except OSError as error:
        if error.errno not in _FULL:
            raise
        where = error.filename or "standard output"
        if not error.filename:  # else the interpreter writes the rest at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _report(OperatorError(f"cannot write to {where}: {error.strerror}"), program)
    return result if isinstance(result, int) else Exit.DONE


def _report(error: Exception, program: str) -> int:
    match error:
        case click.UsageError():
            asked = error.ctx.command_path if error.ctx else program
            _write_error(program, f"{error.format_message()} (see {asked} --help)")
            return Exit.USAGE
        case click.ClickException():
            _write_error(program, error.format_message())
            return error.exit_code
        case OperatorError():
            _write_error(program, str(error))
            return error.code
        case _ if _has_current_directory():
            raise error
        case _:
            _write_error(program, _NO_FOLDER)
            return Exit.CONFIGURATION


def _has_current_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _write_error(program: str, message: str) -> None:
    if any(isinstance(handler.formatter, JsonLines) for handler in logging.root.handlers):
        logging.getLogger(program).critical("%s", message)
        return
    line = f"{program}: {printable(message)}"
    if is_journal(sys.stderr, os.environ):
        line = add_priority(logging.ERROR, line)
    click.echo(line, err=True)


def log_to_stderr(settings: ProgramSettings) -> None:
    """Send the log to stderr as the settings say; may be called again.

    Warns of files with secrets that everybody may read.
    """
    handler = LogHandler(sys.stderr, os.environ)
    handler.setFormatter(FORMATS[settings.log_format]())
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    # we log nats-py's errors ourselves
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    # it warns when a server ends a connection with TLS, because of the protocol of nats-py
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    warn_of_readable_secrets(settings.secret_files)


def warn_of_readable_secrets(secrets: Iterable[Path]) -> None:
    """Log the files that every user of this machine may read."""
    for path in readable_by_others(secrets):
        message = "%s holds a secret and can be read by everybody on this machine; chmod 600 it"
        logger.warning(message, path)
