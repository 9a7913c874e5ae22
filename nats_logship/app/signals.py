"""The signals that a running program handles. Imports little: a start needs it first of all."""

import signal

ENDING = (signal.SIGTERM, signal.SIGINT)
HANDLED = frozenset({*ENDING, signal.SIGHUP})


def die_of_interrupt() -> None:
    """Have Ctrl-C end the program without a traceback, until `raise_on_interrupt`."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_on_interrupt() -> None:
    """Have Ctrl-C raise KeyboardInterrupt, unless it is ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def block_signals() -> None:
    """Hold signals back until `Service.run`: one that is raised in an import may be lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
