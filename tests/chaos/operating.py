"""The operator of a run: reads what receivers say when they refuse or are blocked, and does exactly that, nothing else.

On duty only from the first fault on that damages what programs remember: anywhere else a receiver that refuses is a finding.
"""

import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from broker.wire.streams import OFFSETS_BUCKET, offset_key
from tests.chaos.commands import CommandFailed, insist
from tests.chaos.program import Program, held

if TYPE_CHECKING:
    from tests.chaos.world import World

_LOOK = 0.5  # seconds
_BLOCKED = re.compile(
    r"partition ([0-9]+) is blocked, its lines wait in the stream: (?:state|reach): .*"
)
_FENCED = "this one goes on with its others; start it again"
_CONSUMER = re.compile(r"consumer ([\w-]+) .*delete it")
_QUOTED = re.compile(r"`(log(?:receiver offsets|broker apply)[^`]*)`")
_PARTITION = re.compile(r"(?:partition |\bp)([0-9]+)\b")


@dataclass(frozen=True, slots=True)
class HarmedEntry:
    """What was left of the entry of a partition, with the offset that it says, and what it was before."""

    left: bytes
    next: int
    before: bytes


@dataclass(frozen=True, slots=True)
class HarmedStore:
    """The store of a partition that was harmed; `copy` is what it was, None where that is lost.

    `lives` are the partition's live files, by how long they were then: none may change until somebody has decided.
    """

    path: Path
    copy: bytes | None
    lives: Mapping[Path, int]

    def touched(self) -> list[str]:
        """Return a finding for each live file that has changed since."""
        sizes = {live: live.stat().st_size if live.exists() else None for live in self.lives}
        return [
            f"{live.name} had {size} bytes when {self.path.name} was harmed, and has {sizes[live]}"
            for live, size in self.lives.items()
            if sizes[live] != size
        ]

    def bring_back(self, copy: bytes) -> None:
        """Put the copy where the store was, under another inode."""
        for end in ("-wal", "-shm", "-journal"):
            self.path.with_name(f"{self.path.name}{end}").unlink(missing_ok=True)
        put(self.path, copy)


def put(path: Path, content: bytes) -> None:
    """Write a file whole, in place of what is there."""
    fresh = path.with_name(f"{path.name}.copied")
    fresh.write_bytes(content)
    fresh.replace(path)


def advice(words: str) -> list[str]:
    """Return the command that a line quotes, as words; empty where it quotes none.

    Where the line leaves the choice, the partition is the one that it speaks of.
    """
    quoted = [found for found in _QUOTED.findall(words) if "offsets show" not in found]
    if not quoted:
        return []
    command: list[str] = quoted[0].split()
    about = _PARTITION.search(words)
    if "offsets" in command and "--partition" not in command and about:
        command += ["--partition", about[1]]
    return command


@dataclass(slots=True)
class Operator:
    """Looks after receivers from a thread of its own, from `with` to its end; `tell` is told what was read and done."""

    central: "World"
    tell: Callable[..., None] = lambda *_, **__: None
    stores: dict[int, HarmedStore] = field(default_factory=dict)
    """By partition, until somebody has said so, as each of them has to be said."""
    entries: dict[int, HarmedEntry] = field(default_factory=dict)
    """By partition: what "bring back the right one" means."""
    on_duty: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)
    _brought_back_at: float = -math.inf
    _read: dict[str, int] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Operator":
        self._thread = threading.Thread(target=self._run, name="operator")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK):
            if not self.on_duty.is_set():
                continue
            for receiver in self.central.receivers:
                try:
                    self._look_after(receiver)
                except Exception as error:  # noqa: BLE001 - a disk is full, say; the next look tries again
                    self.tell("operator", read=receiver.name, failed=repr(error))

    def _look_after(self, receiver: Program) -> None:
        if refused := receiver.refused:
            words = refused.words.splitlines()[-1] if refused.words else ""
            if refused.at > self._brought_back_at:
                self._heed(words)
            else:  # what it says of a store may be mended by now
                self.tell("operator", read=words, did="started again")
            self._news(receiver)
            receiver.go_on()
            return
        for line in self._news(receiver):
            if _CONSUMER.search(line):
                self._heed(line)
            elif _BLOCKED.search(line) or _FENCED in line:
                self._heed_stopped(line)
                self._news(receiver)
                return

    def _news(self, receiver: Program) -> list[str]:
        """Return the lines that a receiver has written since we looked last."""
        begin = self._read.get(receiver.name, 0)
        with receiver.log.open("rb") as file:
            file.seek(begin)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[receiver.name] = begin + len(whole)
        return whole.decode(errors="replace").splitlines()

    def _heed_stopped(self, words: str) -> None:
        """Do what a line says while no receiver runs, and have them started again."""
        receivers = self.central.receivers
        with held(receivers):
            for receiver in receivers:
                receiver.process.terminate()
            for receiver in receivers:
                receiver.process.wait(30)
            self._heed(words)

    def _heed(self, words: str) -> None:
        if consumer := _CONSUMER.search(words):
            self.central.delete_consumer(consumer[1])
            self.tell("operator", read=words, did=f"deleted {consumer[1]}")
            return
        command = advice(words)
        if {"adopt", "earliest"} & {*command} and (back := self._brought_back(command)):
            self.tell("operator", read=words, did=back)
            return
        command = self._completed(command)
        if command:
            program, *rest = command
            try:
                insist(program, *rest, *self.central.admin_words)
            except CommandFailed as error:
                self.failures.append(str(error))
        self.tell("operator", read=words, did=" ".join(command) or "started again")

    def _brought_back(self, command: Sequence[str]) -> str:
        """Bring back the right one of store and entry, where there is a copy of it; return what was done."""
        partition = _partition(command)
        if "adopt" in command and (store := self.stores.get(partition)):
            self.failures += store.touched()
            if store.copy is not None:
                store.bring_back(store.copy)
                self._brought_back_at = time.monotonic()
            del self.stores[partition]
            return f"brought back {store.path.name}" if store.copy is not None else ""
        entry = self.entries.pop(partition, None)
        if entry and self._next(partition) == entry.next:
            self.central.write_entry(OFFSETS_BUCKET, offset_key(partition), entry.before)
            return f"brought back the entry of partition {partition}"
        return ""

    def _next(self, partition: int) -> int | None:
        offset = self.central.offset(partition)
        return offset.next if offset else None

    def _completed(self, command: list[str]) -> list[str]:
        """Return a command with all that it leaves to whoever gives it."""
        if not command:
            return []
        if "adopt" in command:
            folders = ("--output", self.central.output, "--state-dir", self.central.receiver_state)
            return [*command, *map(str, folders), "--yes"]
        if "earliest" in command:  # a stream that was made anew is so for all
            command[command.index("--partition") + 1] = "all"
        elif "set" in command:
            self.entries.pop(_partition(command), None)
            place = str(self._next(_partition(command)))
            if "--to" not in command:
                command += ["--to", place]
            command = [place if word == "SEQUENCE" else word for word in command]
        return [*command, "--yes", *(["--force"] if "offsets" in command else [])]


def _partition(command: Sequence[str]) -> int:
    return int(command[command.index("--partition") + 1])
