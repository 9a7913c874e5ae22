"""The operator of a run: reads what receivers say when they refuse or are blocked, and does exactly that, nothing else.

On duty only from the first fault on that damages what programs remember: anywhere else a receiver that refuses is a finding.
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.chaos.commands import CommandFailed, insist
from tests.chaos.program import Program

__all__ = ["Central", "Operator", "advice"]

_LOOK = 0.5  # seconds
_BLOCKED = re.compile(
    r"partition ([0-9]+) is blocked, its lines wait in the stream: (?:state|reach): .*"
)
_CONSUMER = re.compile(r"consumer ([\w-]+) .*delete it")
_QUOTED = re.compile(r"`(log(?:receiver offsets|broker apply)[^`]*)`")
_PARTITION = re.compile(r"(?:partition |\bp)([0-9]+)\b")


class Central(Protocol):
    """What an operator needs of a world."""

    receivers: list[Program]

    @property
    def admin_words(self) -> list[str | Path]:
        """What a command takes that asks the brokers for an admin."""

    def delete_consumer(self, name: str) -> None:
        """Delete a consumer of the stream, if it is there."""

    def offset(self, partition: int) -> int | None:
        """Return up to where a partition is committed by the newest entry that can be read."""


def advice(words: str) -> list[str]:
    """Return the command that a line quotes, as words; empty where it quotes none.

    Where the line leaves the choice, the partition is the one that it speaks of.
    """
    quoted = [found for found in _QUOTED.findall(words) if "--history" not in found]
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

    central: Central
    tell: Callable[..., None] = lambda *_, **__: None
    copies: dict[Path, bytes] = field(default_factory=dict)
    """Files as they were while everything that writes them was dead: what "bring it back" means."""
    on_duty: threading.Event = field(default_factory=threading.Event)
    failures: list[str] = field(default_factory=list)
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
            self._heed(refused.words.splitlines()[-1] if refused.words else "")
            self._news(receiver)
            receiver.go_on()
            return
        for line in self._news(receiver):
            if _CONSUMER.search(line):
                self._heed(line)
            elif _BLOCKED.search(line):
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
        for receiver in receivers:
            receiver.hold()
        try:
            for receiver in receivers:
                receiver.process.terminate()
            for receiver in receivers:
                receiver.process.wait(30)
            self._heed(words)
        finally:
            for receiver in receivers:
                receiver.release()

    def _heed(self, words: str) -> None:
        for path in [path for path in self.copies if str(path) in words]:
            path.write_bytes(self.copies[path])
            del self.copies[path]
            self.tell("operator", read=words, did=f"brought back {path.name}")
            return
        if consumer := _CONSUMER.search(words):
            self.central.delete_consumer(consumer[1])
            self.tell("operator", read=words, did=f"deleted {consumer[1]}")
            return
        if " is damaged" in words and (named := _named(words)):
            named.rename(named.with_name(f"{named.name}.aside"))
        command = self._command(words)
        if command:
            program, *rest = command
            try:
                insist(program, *rest, *self.central.admin_words)
            except CommandFailed as error:
                self.failures.append(str(error))
        self.tell("operator", read=words, did=" ".join(map(str, command)) or "started again")

    def _command(self, words: str) -> list[str]:
        command = advice(words)
        if "reset" in command:  # a stream that was made anew is so for all
            command[command.index("--partition") + 1] = "all"
        if "set" in command:
            partition = int(command[command.index("--partition") + 1])
            place = str(self.central.offset(partition))
            if "--to" not in command:
                command += ["--to", place]
            command = [place if word == "SEQUENCE" else word for word in command]
        return (
            [*command, "--yes", *(["--force"] if "offsets" in command else [])] if command else []
        )


def _named(words: str) -> Path | None:
    found = re.search(r"(/\S+) is damaged", words)
    return Path(found[1]) if found and Path(found[1]).exists() else None
