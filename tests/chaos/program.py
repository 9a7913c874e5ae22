"""Programs as a service manager runs them: ended ones are restarted, refused ones (78) wait."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import Process, TookTooLong, wait_until

_LOOK = 0.1  # seconds
SEEN = 0.4  # seconds after which the supervisor has seen an end, and starts nothing that is held
_AGAIN_AFTER = 0.5  # seconds; RestartSec
_REFUSED = 78


@dataclass(slots=True, eq=False)
class Program:
    """A program under supervision; `refused` is the last line of one that refused to go on."""

    process: Process
    last_output: str = ""
    refused: str = ""
    _held: int = 0
    _ended_at: float | None = None

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def log(self) -> Path:
        return self.process.log

    def is_running(self) -> bool:
        return self.process.is_running()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do not start it again meanwhile, whatever becomes of it."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    def hold(self) -> None:
        self._held += 1

    def kill_tree(self) -> None:
        """Kill it with all that it has started; to be called while it is held."""
        self.process.kill_tree()
        time.sleep(SEEN)  # it may have been started just then
        self.process.kill_tree()

    def go_on(self) -> None:
        """Start it again after it refused to: somebody has done what it asked for."""
        self.refused = ""

    def supervise(self, now: float) -> None:
        """Start it again if it has ended and is to run; for the supervisor's thread."""
        popen = self.process.popen
        if popen is None or (code := popen.poll()) is None:
            return
        if self._ended_at is None:
            self._ended_at, self.last_output = now, self.process.last_output()
            if code == _REFUSED:
                self.refused = (self.last_output or "said nothing").splitlines()[-1]
        if not self._held and not self.refused and now - self._ended_at >= _AGAIN_AFTER:
            self._ended_at = None
            self.process.start()


@contextmanager
def held(programs: Iterable[Program], *, kill: bool = False) -> Iterator[None]:
    """Leave programs dead that die, or kill them."""
    with ExitStack() as stack:
        programs = list(programs)
        for program in programs:
            stack.enter_context(program.held())
        if kill:
            time.sleep(SEEN)  # one may be started just now
            for program in programs:
                program.process.kill()
        yield


class Supervisor:
    """Looks after programs from a thread of its own, from `with` to its end."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor")

    def __enter__(self) -> "Supervisor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Start nothing again from here on."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def take(self, process: Process) -> Program:
        program = Program(process)
        self.programs.append(program)
        return program

    def dismiss(self, program: Program, seconds: float = 15.0) -> None:
        """End a program for good: it is asked first, and killed after so many seconds."""
        program.hold()
        self.programs.remove(program)
        time.sleep(SEEN)  # it may be started just now
        program.process.terminate()
        with suppress(TookTooLong):
            program.process.wait(seconds)
        program.process.kill()

    def wait(self, what: str, holds: Callable[[], bool], seconds: float) -> float:
        """Wait until `holds()`, return the seconds; raises `TimeoutError` with refusals."""
        began = time.monotonic()

        def is_so() -> bool:
            if self.failure:
                raise RuntimeError("the supervisor died") from self.failure
            return holds()

        try:
            wait_until(what, is_so, seconds, every=0.1)
        except TookTooLong as late:
            refused = (one for one in self.programs if one.refused)
            reasons = "".join(f"\n{one.name} refused: {one.refused}" for one in refused)
            raise TimeoutError(f"{late}{reasons}") from None
        return time.monotonic() - began

    def _run(self) -> None:
        try:
            while not self._ended.wait(_LOOK):
                for program in list(self.programs):
                    program.supervise(time.monotonic())
        except BaseException as error:
            self.failure = error
            raise
