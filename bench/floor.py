"""The least that a backlog costs on this machine: a plain copy, and a bare loop that publishes the same bytes.

The bare loop is a socket and prepared messages, each as large as a full round of a shipper: what is left over to its
figures is the shipper's own, what is in them is the broker's and the kernel's.
"""

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Floor", "copy_floor", "publish_floor"]

_GB = 1e9
_ROUND = 4 * 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Floor:
    """Rate in MB/s (1e6 bytes), and processor time of this process in seconds per GB."""

    megabytes_per_second: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.megabytes_per_second:.0f} MB/s, {self.cpu:.2f} CPU s/GB"


def copy_floor(source: Path, folder: Path) -> Floor:
    """Copy a file and sync the copy."""
    began, used = time.monotonic(), _cpu()
    with source.open("rb") as file, (folder / "copy").open("wb") as target:
        while part := file.read(1 << 20):
            target.write(part)
        target.flush()
        os.fsync(target.fileno())
    floor = _floor(source, began, used)
    (folder / "copy").unlink()
    return floor


def publish_floor(source: Path, port: int, subject: str) -> Floor:
    """Publish a file in messages of 4 MiB to the broker at a loopback port, each after the answer to the one before."""
    with socket.create_connection(("127.0.0.1", port)) as line, source.open("rb") as file:
        answers = line.makefile("rb")
        answers.readline()
        line.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
        line.sendall(b"SUB floor 1\r\n")
        began, used = time.monotonic(), _cpu()
        while lines := file.read(_ROUND):
            line.sendall(f"PUB {subject} floor {len(lines)}\r\n".encode())
            line.sendall(lines)
            line.sendall(b"\r\n")
            while not answers.readline().startswith(b'{"stream"'):
                pass
        return _floor(source, began, used)


def _floor(source: Path, began: float, used: float) -> Floor:
    size, seconds = source.stat().st_size, time.monotonic() - began
    return Floor(size / 1e6 / seconds, (_cpu() - used) / (size / _GB))


def _cpu() -> float:
    times = os.times()
    return times.user + times.system
