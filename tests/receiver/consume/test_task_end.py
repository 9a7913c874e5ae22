"""The messages on their way to a session's thread: the loop waits, and the thread wakes it."""

import asyncio
import threading
from typing import Any

from receiver.consume.task_end import Arrivals


class Switching(threading.Condition):
    """A condition behind whose release another thread runs once."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self._other = threading.Thread(target=run)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._other.ident is None:
            self._other.start()
            self._other.join()


def test_a_thread_may_wake_the_loop_before_it_waits() -> None:
    arrivals = Arrivals()
    arrivals.end()
    arrivals._changed = Switching(arrivals.ask_again)
    waiting = arrivals.wait_for(lambda: not arrivals.is_ended)
    asyncio.run(asyncio.wait_for(waiting, 5))
