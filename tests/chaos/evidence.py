"""What a failing run leaves, so that one can see why: the disks of its world vanish with its namespaces, and so do processes.

folder/processes.txt          what ran when it failed, with states and where the kernel has them waiting
folder/streams/<name>.jsonl   each message: sequence, subject, time, headers, size and hash of its payload; of a bucket, the payload
folder/kept                   the programs' states, received files, what was written, log files, stores

Never fails itself: what cannot be had is left out, and the rest is kept.
"""

import hashlib
import json
import subprocess
from contextlib import suppress
from typing import IO, Any

from broker.client.connection import Connection
from broker.topology import Topology
from broker.wire.streams import STREAM
from tests.chaos.world import World
from tests.support.processes import TookTooLong

_PATIENCE = 60.0  # seconds for a stream
_PARTS = ("central/state", "central/out", "hosts/*/logs", "brokers/*/store", "written")


def look_around(world: World) -> None:
    """Tell what runs now; to be called before anything is ended."""
    with (world.folder / "processes.txt").open("wb") as file:
        words = ("ps", "-eLo", "pid,ppid,tid,stat,wchan:24,rss,args")
        subprocess.run(words, stdout=file, stderr=file, timeout=30, check=False)


def dump_streams(world: World) -> None:
    """Write what is in the stream and its buckets; brokers that do not run are started for it."""
    folder = world.folder / "streams"
    folder.mkdir()
    started = [one.process for one in world.broker_programs if not one.is_running()]
    for process in started:
        process.start()
    for name in (one["name"] for one in Topology().streams()):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            try:
                world.ask(lambda connection: _dump(connection, name, file), _PATIENCE)  # noqa: B023 - asked at once
            except TimeoutError:
                file.write(f"not all within {_PATIENCE:g} s\n")
    for process in started:
        with suppress(TookTooLong):
            process.stop()


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


def keep_disks(world: World) -> None:
    """Copy what is on the disks that vanish, and what was written; what cannot be read is left out."""
    (world.folder / "kept").mkdir()
    for part in _PARTS:
        for top in world.folder.glob(part):
            words = ("cp", "-a", "--parents", "--", top.relative_to(world.folder), "kept")
            subprocess.run(words, cwd=world.folder, check=False, capture_output=True)
