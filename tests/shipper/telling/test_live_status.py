"""What a running agent says of itself on its socket, to clients of every kind, and what stands there without one."""

import asyncio
import json
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.exits import OperatorError
from broker.subjects import own_token
from shipper.filestate import FileState, Stage
from shipper.telling.finding import Mark
from shipper.telling.live import Live, NoAnswer, ask
from shipper.telling.premises import check_running
from shipper.telling.report import FileReport, HostReport, Trouble, reason_for
from shipper.telling.status import render, running
from tests.shipper.children import run_child
from tests.shipper.host import Host


def report(agent: str = "1-aaaaaaaa", files: int = 1) -> HostReport:
    return HostReport(
        host="web01",
        agent=agent,
        sequence=7,
        running=True,
        files=tuple(
            FileReport(f"/log/{n}\x1b.log", f"f{n}", "following", "", 4096 + n, 4096, n)
            for n in range(files)
        ),
        pid=1,
        troubles=(Trouble("/log/x", "may not be read"),),
        lost_bytes={"deleted": 5},
        passed_over=("/log/old",),
    )


def name_of(host: str) -> str:
    """Return the name of the socket on which the agent of a host listens."""
    return f"\0logship/status/{own_token(host)[:64]}/{os.getpid()}"


@pytest.fixture
def host(own_host: str) -> str:
    return own_host


def report_of(host: str) -> HostReport:
    return replace(report(), host=host)


async def test_what_the_agent_says_arrives_as_it_was_said(host: str) -> None:
    async with Live(host, lambda: report_of(host)):
        heard = await asyncio.to_thread(ask, host)
        everybody = await asyncio.to_thread(ask)

    assert heard == [report_of(host)]
    assert report_of(host) in everybody
    assert await asyncio.to_thread(ask, host) == []


async def test_a_host_whose_name_is_too_long_for_a_socket_will_do(host: str) -> None:
    long = f"{'x' * 60}.{'y' * 60}.{'z' * 60}.{host[-40:]}"

    async with Live(long, lambda: report_of(long)):
        assert await asyncio.to_thread(ask, long) == [report_of(long)]
        assert await asyncio.to_thread(ask, host) == []


async def test_clients_that_never_read_keep_nobody_from_asking_for_long(host: str) -> None:
    made = cut_off = 0
    heard: list[HostReport] = []

    def large() -> HostReport:
        nonlocal made
        made += 1
        # more than a socket takes before somebody reads
        return replace(report(files=4_000), host=host)

    async with Live(host, large, patience=0.5), asyncio.timeout(180):
        rude = [socket.socket(socket.AF_UNIX) for _ in range(8)]
        for client in rude:
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, name_of(host))
        while not heard:
            try:
                heard = await asyncio.to_thread(ask, host)
            except NoAnswer:
                cut_off += 1  # on a busy machine the last piece may come too late
            await asyncio.sleep(0.05)
        for client in rude:
            client.close()

    assert len(heard[0].files) == 4_000
    # who is turned away costs nothing; one may have been too slow to read
    assert made <= len(rude) + cut_off + 2


async def test_an_agent_whose_name_is_taken_ships_all_the_same(host: str) -> None:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(name_of(host))

        async with Live(host, report):
            pass


def test_an_agent_that_does_not_answer_is_said_to_be_stuck(host: str) -> None:
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(name_of(host))
        stuck.listen(1)

        with pytest.raises(NoAnswer, match="stuck"):
            ask(host, patience=0.1)
        (finding,) = check_running(host)

    assert (finding.mark, "stuck" in finding.text) == (Mark.BAD, True)


@pytest.mark.parametrize("said", [b"[]", b"{}", b"hello", b'{"files": 1, "troubles": []}'])
def test_another_program_on_the_socket_is_an_error_of_one_line(host: str, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(name_of(host))
        stranger.listen(1)

        def answer() -> None:
            client, _ = stranger.accept()
            with client:
                client.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(OperatorError, match="another version"):
            running(host)
        answering.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be two users")
async def test_another_user_is_told_nothing_and_why(open_folder: Path) -> None:
    async with Live(open_folder.name, report):
        await asyncio.to_thread(run_child, "asked_by_a_stranger", open_folder)


def test_a_report_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    document = json.loads(json.dumps(report().document()))
    document["mood"] = "good"
    document["files"][0]["colour"] = "green"

    assert HostReport.from_document(document) == report()


def state(**changed: Any) -> FileState:
    usual: dict[str, Any] = {
        **{"path": "/log/a", "file": "f1", "size": 100, "offset": 100, "inode": 1, "held": 0},
        **{"seen": 0, "since": None, "stage": Stage.FOLLOWING, "note": ""},
    }
    return FileState(**{**usual, **changed})


@pytest.mark.parametrize(
    ("seen", "position", "reason"),
    [
        pytest.param(state(), 100, "", id="nothing to move"),
        pytest.param(state(), 90, "no broker", id="what all wait for"),
        pytest.param(state(offset=90, held=10), 90, "rest of its last line", id="held"),
        pytest.param(state(offset=90, held=10), 80, "no broker", id="held, and more"),
        pytest.param(state(note="cannot be opened: no"), 100, "cannot be opened", id="its own"),
        pytest.param(state(stage=Stage.DOUBTFUL), 100, "truncated", id="doubtful"),
    ],
)
def test_why_a_file_does_not_move_is_said(seen: FileState, position: int, reason: str) -> None:
    said = reason_for(seen, position, "no broker")

    assert reason in said
    assert bool(reason) == bool(said)


async def test_a_file_is_followed_then_rotated_then_deleted(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.write("app.log", b"a line\nand more")
    await host.ship()
    (followed,) = host.follower.states()
    host.move("app.log", "app.log.1")
    await host.look()
    (rotated,) = host.follower.states()
    (tmp_path / "app.log.1").unlink()
    await host.look()
    (deleted,) = host.follower.states()
    await host.follower.close()

    stages = [followed.stage, rotated.stage, deleted.stage]
    assert stages == [Stage.FOLLOWING, Stage.ROTATED, Stage.DELETED]
    assert (followed.held, followed.offset, followed.size) == (8, 7, 15)


def test_a_table_of_a_hundred_files_has_those_behind_first_and_no_control_characters() -> None:
    began = time.process_time()
    shown = render([report(files=100)]).splitlines()

    assert time.process_time() - began < 1
    assert len(shown) == 105
    assert "/log/99\\x1b.log" in shown[3]
    assert all(line.isprintable() for line in shown)
    assert max(map(len, shown[2:])) < 120
    assert "5 B (deleted)" in shown[1]
    assert "not followed: /log/x: may not be read" in shown[-2]
    assert "not followed: 1 files" in shown[-1]
