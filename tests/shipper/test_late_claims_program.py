"""A late claim of an older agent takes nothing from the real program that it could not get back."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.processes import Process, Processes, wait_until
from broker.client.connection import Connection
from broker.wire.subjects import Subject
from shipper.publish.claim import Registry
from shipper.publish.stored import AgentId

pytestmark = pytest.mark.nats

ReadBack = Callable[[str], bytes]


@pytest.fixture
def start(processes: Processes, tmp_path: Path, logs_url: str) -> Callable[[str, str], Process]:
    def start(file: str, redirection: str) -> Process:
        words = f"--server '{logs_url}' --host web01"
        return processes.start(
            "shipper",
            ["sh", "-c", f"exec {sys.executable} -m shipper --file '{file}' {words} {redirection}"],
            folder=Path(__file__).parents[2],
        )

    return start


@pytest.fixture
def claim_late(logs_url: str) -> Callable[[], None]:
    async def claim() -> None:
        connection = Connection([logs_url], "ghost")
        registry = Registry(connection, Subject.for_host("web01", 2))
        await registry.claim(AgentId(1, "ffffffff"), time.time_ns())
        await connection.close()

    return lambda: asyncio.run(claim())


def test_a_deleted_file_that_is_only_held_open_is_read_to_its_end(
    start: Callable[[str, str], Process],
    claim_late: Callable[[], None],
    logs_url: str,
    read_back: ReadBack,
    tmp_path: Path,
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    shipper = start(str(log), "")
    wait_until("it arrives", lambda: read_back(logs_url) == b"one\n", 40, [shipper])

    with log.open("ab", buffering=0) as writer:
        claim_late()
        log.unlink()
        for number in range(100):
            writer.write(b"%d\n" % number)
            time.sleep(0.005)

    wanted = b"one\n" + b"".join(b"%d\n" % number for number in range(100))
    wait_until("all arrives", lambda: len(read_back(logs_url)) >= len(wanted), 40, [shipper])
    assert read_back(logs_url) == wanted
    assert "late claim" in shipper.said()
    assert shipper.stop(12) == 0


def test_no_line_from_standard_input_is_lost(
    start: Callable[[str, str], Process],
    claim_late: Callable[[], None],
    logs_url: str,
    read_back: ReadBack,
    tmp_path: Path,
) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    shipper = start("-", f"< {pipe}")
    with pipe.open("wb", buffering=0) as writer:
        writer.write(b"one\n")
        wait_until("it arrives", lambda: read_back(logs_url) == b"one\n", 40, [shipper])
        claim_late()
        writer.write(b"two\nthree\n")

    assert shipper.wait(60) == 0, shipper.last_words()
    assert read_back(logs_url) == b"one\ntwo\nthree\n"
    assert "late claim" in shipper.said()
