"""Exit codes, and the errors that end a program with one line instead of a traceback."""

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of all three programs; 78 is EX_CONFIG of sysexits.h, which systemd can refuse to restart on."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    CONFIGURATION = 78


class OperatorError(Exception):
    """Something that a person must mend; the message is one line that says what is wrong and what to do."""

    code = Exit.FAILED


class ConfigurationError(OperatorError):
    """A setting, a credential or a stored state that does not fit; starting again without a change is of no use."""

    code = Exit.CONFIGURATION


class FencedError(OperatorError):
    """Another writer took over; this one must stop and must not be restarted by a supervisor."""

    code = Exit.CONFIGURATION


def pick_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group that its program ends with: one for a person before a defect, else the first.

    Tasks that are stopped because one of them failed may fail in turn; what they say is an echo.
    """
    found: BaseException = errors.subgroup(OperatorError) or errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
