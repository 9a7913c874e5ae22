"""The signals that a running program handles. Imports little: a start needs it first of all."""

import signal

ENDING = (signal.SIGTERM, signal.SIGINT)
HANDLED = frozenset({*ENDING, signal.SIGHUP})


def block_signals() -> None:
    """Hold signals back until `Service.run`: one that is raised in an import may be lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
