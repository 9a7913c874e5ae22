"""Exit codes, and the errors that end a program with one line instead of a traceback."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of all programs; 78 is EX_CONFIG of sysexits.h: systemd does not restart then."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION = 78


class OperatorError(Exception):
    """A person must act; the message is one line that says what is wrong and what to do."""

    code = Exit.FAILED


class ConfigurationError(OperatorError):
    """A setting, a credential or stored state is wrong: a restart without a change cannot help."""

    code = Exit.CONFIGURATION


class FencedError(OperatorError):
    """Another writer took over: this one must stop, and no supervisor may restart it."""

    code = Exit.CONFIGURATION


def pick_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group to end the program with: an `OperatorError`, else the first.

    Tasks that are cancelled because one of them failed may fail too.
    """
    found: BaseException = errors.subgroup(OperatorError) or errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
