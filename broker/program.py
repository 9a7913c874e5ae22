"""How every program begins and ends: its log, and one line and an exit code for whatever stops it."""

import logging
import signal
import sys
from collections.abc import Callable, Sequence

import click

from broker.exits import Exit, OperatorError

__all__ = ["log_to_stderr", "run"]


def run(command: click.Command, arguments: Sequence[str]) -> None:
    """Run a command line and exit with its code; an error that a person must mend is one line on stderr.

    SIGTERM ends it in order from now on, until the program takes that over: nothing is under way yet, and only who
    asked for all at once (`--once`) did not get it.
    """
    told_to_end = Exit.FAILED if "--once" in arguments else Exit.DONE
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(told_to_end))
    sys.exit(
        _code_of(lambda: command.main(arguments, standalone_mode=False), command.name or "logship")
    )


def _code_of(call: Callable[[], object], program: str) -> int:
    try:
        result = call()
    except click.Abort:
        return 130
    except click.UsageError as error:
        _say_usage(program, error)
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


def _say_usage(program: str, error: click.UsageError) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)  # the whole help, as no command was given
    else:
        _say(program, f"{error.format_message()} (see {program} --help)")


def _say(program: str, message: str) -> None:
    click.echo(f"{program}: {message}", err=True)


def log_to_stderr(level: str) -> None:
    """Send this program's log to stderr: no time stamps, as journald adds its own."""
    logging.basicConfig(
        level=level.upper(), format="%(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("nats").setLevel(
        logging.CRITICAL
    )  # what it reports reaches us as errors and is said once there
