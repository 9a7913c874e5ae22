"""The real program with a state folder that fails it: no room, a read-only disk, a file of another version."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.processes import Process, Processes, wait_until

pytestmark = pytest.mark.nats

ReadBack = Callable[[str], bytes]
Start = Callable[..., Process]
FILES = 40


@pytest.fixture
def start(processes: Processes, tmp_path: Path, logs_url: str) -> Start:
    numbers = iter(range(100))

    def start(*options: str, state: Path = tmp_path / "state") -> Process:
        words = ["--server", logs_url, "--host", "web01", "--state-dir", str(state)]
        return processes.start(
            f"shipper-{next(numbers)}",
            [sys.executable, "-m", "shipper", *words, "--file", str(tmp_path / "*.log"), *options],
            folder=Path(__file__).parents[2],
        )

    return start


def append(folder: Path, word: bytes) -> None:
    for number in range(FILES):
        with (folder / f"{number}.log").open("ab") as log:
            log.write(b"%d %s\n" % (number, word))


def wanted(*words: bytes) -> list[bytes]:
    return sorted(b"%d %s\n" % (number, word) for number in range(FILES) for word in words)


def test_a_disk_that_fills_up_is_said_once_costs_no_line_and_repeats_none(
    start: Start, tmp_path: Path, logs_url: str, read_back: ReadBack
) -> None:
    def has_come(*words: bytes) -> bool:
        return sorted(read_back(logs_url).splitlines(keepends=True)) == wanted(*words)

    append(tmp_path, b"one")
    shipper = start("--log-level", "warning")
    saved = tmp_path / "state/web01/positions.json"
    wait_until("all is saved", lambda: _files_in(saved) == FILES, 40, [shipper])

    # no file may grow beyond this: as a disk that is full, for one process
    resource.prlimit(shipper.pid, resource.RLIMIT_FSIZE, (saved.stat().st_size // 2,) * 2)
    for word, before in ((b"two", [b"one"]), (b"three", [b"one", b"two"])):
        append(tmp_path, word)
        wait_until("they come", lambda b=before, w=word: has_come(*b, w), 40, [shipper])
        wait_until("it is said", lambda: b"cannot save" in shipper.log.read_bytes(), 40, [shipper])
    said = shipper.log.read_bytes()
    shipper.kill()
    assert said.count(b"cannot save the positions") == 1

    append(tmp_path, b"four")
    again = start("--once")

    assert again.wait(90) == 0, again.last_words()
    assert has_come(b"one", b"two", b"three", b"four")


def _files_in(saved: Path) -> int:
    return len(json.loads(saved.read_bytes())["files"]) if saved.exists() else 0


def test_positions_of_older_and_newer_programs_repeat_nothing(
    start: Start, tmp_path: Path, logs_url: str, read_back: ReadBack
) -> None:
    append(tmp_path, b"one")
    rules = ["--once", "--exclude-lines", "leave this out"]
    assert start(*rules).wait(90) == 0
    append(tmp_path, b"leave this out")
    assert start(*rules).wait(90) == 0
    saved = tmp_path / "state/web01/positions.json"
    document = json.loads(saved.read_bytes())
    del document["crc32"]
    assert all("covered" in entry for entry in document["files"].values())
    older = [{k: v for k, v in e.items() if k != "covered"} for e in document["files"].values()]
    newer = [{**entry, "new": 1} for entry in document["files"].values()]
    names = list(document["files"])

    for version, entries in ((1, older), (1, newer), (2, newer)):
        files = dict(zip(names, entries, strict=True))
        saved.write_text(json.dumps({**document, "version": version, "files": files}))
        again = start(*rules)
        assert again.wait(90) == 0, again.last_words()
        assert (b"version 2" in again.log.read_bytes()) == (version == 2)
        assert (b"reading the stream" in again.log.read_bytes()) == (version == 2)

    assert sorted(read_back(logs_url).splitlines(keepends=True)) == wanted(b"one")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], check=False).returncode:
        pytest.skip("only the superuser may mount")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_shipper_on_a_read_only_disk_may_be_started_again_and_goes_on_once_it_is_writable(
    start: Start, read_only: Path, tmp_path: Path, logs_url: str, read_back: ReadBack
) -> None:
    append(tmp_path, b"one")
    shipper = start("--once", state=read_only)

    assert shipper.wait(60) == 1
    assert "Read-only file system; check --state-dir" in shipper.said()
    subprocess.run(["mount", "-o", "remount,rw", read_only], check=True)
    again = start("--once", state=read_only)

    assert again.wait(90) == 0, again.last_words()
    assert sorted(read_back(logs_url).splitlines(keepends=True)) == wanted(b"one")
