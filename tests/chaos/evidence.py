"""What a failing run leaves, so that one can see why: the disks of its world vanish with its namespaces, and so do processes.

folder/processes.txt          what ran when it failed, with states and where the kernel has them waiting
folder/connections.txt        the sockets of each machine then
folder/streams/<name>.jsonl   each message: sequence, subject, time, headers, size and hash of its payload; of a bucket, the payload
folder/destroyed.jsonl        the blocks that were taken out of the stream on purpose
folder/disks.tar.zst          the programs' states, received files, what was written, log files, stores
folder/left-out.txt           what found no room there, or could not be read

Never fails itself: what cannot be had is told in a file, and the rest is kept.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import zstandard

from bench.processes import TookTooLong
from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import STREAM
from tests.chaos.world import World

__all__ = ["ROOM", "dump_destroyed", "dump_streams", "look_around", "pack"]

ROOM = 1 << 30
"""How many bytes are packed at most, counted unpacked."""
_BALLAST = ".ballast"
_STREAMS = tuple(one["name"] for one in Topology().streams())
_PATIENCE = 60.0  # seconds for a stream
_PARTS = ("central/state", "central/out", "written", "hosts/*/logs", "brokers/*")


def look_around(world: World) -> None:
    """Tell what runs now, and who is connected with whom; to be called before anything is ended."""
    _tell(world.folder / "processes.txt", "ps", "-eLo", "pid,ppid,tid,stat,wchan:24,rss,args")
    with (world.folder / "connections.txt").open("a", encoding="utf-8") as file:
        for machine in world.machines.values():
            file.write(
                f"{machine.name} {machine.address}\n{_asked(*machine.within, 'ss', '-tanpo')}\n"
            )


def _tell(path: Path, *words: str) -> None:
    path.write_text(_asked(*words), "utf-8")


def _asked(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{words}: {error}\n"
    return (done.stdout + done.stderr).decode(errors="replace")


def dump_streams(world: World) -> None:
    """Write what is in the stream and its buckets; brokers that do not run are started for it."""
    folder = world.folder / "streams"
    folder.mkdir()
    started = [one.program.process for one in world.brokers if not one.program.is_running()]
    for process in started:
        process.start()
    for name in _STREAMS:
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            try:
                world.ask(lambda connection: _dump(connection, name, file), _PATIENCE)  # noqa: B023 - asked at once
            except TimeoutError:
                file.write(f"not all within {_PATIENCE:g} s\n")
    for process in started:
        with suppress(TookTooLong):
            process.stop()


def dump_destroyed(world: World) -> None:
    """Write which blocks were destroyed; their lines stand in what was written."""
    with (world.folder / "destroyed.jsonl").open("w", encoding="utf-8") as file:
        for one in world.destroyed:
            told = {"host": one.host, "file_id": one.file_id, "start": one.start}
            file.write(json.dumps(told | {"end": one.start + len(one.lines)}) + "\n")


async def _dump(connection: Connection, stream: str, file: IO[str]) -> None:
    file.seek(0)
    file.truncate()
    file.write(json.dumps(await connection.api(f"STREAM.INFO.{stream}")) + "\n")
    sequence = 1
    while True:
        body = json.dumps({"seq": sequence, "next_by_subj": ">"}).encode()
        message = await connection.call(f"DIRECT.GET.{stream}", body)
        headers = dict(message.headers or {})
        if "Status" in headers:
            return
        sequence = int(headers["Nats-Sequence"]) + 1
        told: dict[str, Any] = {
            "headers": headers,
            "bytes": len(message.data),
            "sha256": hashlib.sha256(message.data).hexdigest()[:16],
        }
        if stream != STREAM:
            told["payload"] = message.data.decode(errors="replace")
        file.write(json.dumps(told) + "\n")


def pack(world: World, room: int = ROOM) -> None:
    """Pack what is on the disks, small files first of each kind, until there is no room left."""
    for host in world.hosts:
        folder = world.folder / "written" / host.name
        folder.mkdir(parents=True, exist_ok=True)
        for number, source in enumerate(host.sources()):
            (folder / str(number)).write_bytes(source)
    pack_folder(world.folder, room)
    shutil.rmtree(world.folder / "written", ignore_errors=True)


def pack_folder(folder: Path, room: int) -> None:
    """Pack the disks below a run's folder, at most `room` bytes of them."""
    left_out: list[str] = []
    compressor = zstandard.ZstdCompressor(level=3)
    with (
        (folder / "disks.tar.zst").open("wb") as file,
        compressor.stream_writer(file) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        for size, path in _files(folder):
            name = str(path.relative_to(folder))
            if size > room:
                left_out.append(f"{name}: {size} bytes")
                continue
            try:
                content = path.read_bytes()
            except OSError as error:
                left_out.append(f"{name}: {error}")
                continue
            room -= len(content)
            _add(archive, name, path, content)
    (folder / "left-out.txt").write_text("".join(f"{line}\n" for line in left_out), "utf-8")


def _add(archive: tarfile.TarFile, name: str, path: Path, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    with suppress(OSError):
        status = path.stat()
        entry.mtime, entry.mode = int(status.st_mtime), status.st_mode & 0o7777
    archive.addfile(entry, io.BytesIO(content))


def _files(folder: Path) -> Iterator[tuple[int, Path]]:
    for part in _PARTS:
        found = []
        for top in sorted(folder.glob(part)):
            for where, _, names in os.walk(top):
                found += [Path(where, name) for name in names if _BALLAST not in where]
        sized = [(path.lstat().st_size, path) for path in found if _is_plain(path)]
        yield from sorted(sized)


def _is_plain(path: Path) -> bool:
    try:
        return path.is_file() and not path.is_symlink() and path.name != _BALLAST
    except OSError:
        return False
