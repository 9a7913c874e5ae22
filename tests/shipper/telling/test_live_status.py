"""What a running agent says of itself on its socket, to clients of every kind, and what stands there without one."""

import asyncio
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.block import Identity
from broker.exits import OperatorError
from shipper.cursor import Cursor
from shipper.filestate import FileState, Stage
from shipper.positions import Positions
from shipper.telling.finding import Mark
from shipper.telling.live import SOCKET_NAME, Live, ask
from shipper.telling.premises import check_state
from shipper.telling.report import FileReport, HostReport, Trouble, reason_for
from shipper.telling.status import render, survey
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


async def test_what_the_agent_says_arrives_as_it_was_said(tmp_path: Path) -> None:
    async with Live(tmp_path, report):
        heard = await asyncio.to_thread(ask, tmp_path)
        mode = stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode)

    assert heard == report()
    assert mode == 0o660
    assert not (tmp_path / SOCKET_NAME).exists()


async def test_a_folder_whose_path_is_too_long_for_a_socket_will_do(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 200) / ("y" * 200)
    folder.mkdir(parents=True)

    async with Live(folder, report):
        assert await asyncio.to_thread(ask, folder) == report()


async def test_the_socket_of_a_killed_agent_is_no_agent_and_in_nobodys_way(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(tmp_path / SOCKET_NAME))

    assert ask(tmp_path) is None
    async with Live(tmp_path, report):
        assert await asyncio.to_thread(ask, tmp_path) == report()


async def test_of_two_agents_the_newer_one_answers_also_after_the_end_of_the_older(
    tmp_path: Path,
) -> None:
    older = Live(tmp_path, lambda: report("older"))
    await older.__aenter__()
    # the name of the socket has the process in it; in one process the second takes the first one's place all the same
    async with Live(tmp_path, lambda: report("newer")):
        await older.__aexit__(None, None, None)
        heard = await asyncio.to_thread(ask, tmp_path)

    assert heard is not None
    assert heard.agent == "newer"


async def test_clients_that_never_read_keep_nobody_from_asking_for_long(tmp_path: Path) -> None:
    made = cut_off = 0
    heard: HostReport | None = None

    def large() -> HostReport:
        nonlocal made
        made += 1
        return report(files=4_000)  # more than a socket takes before somebody reads

    async with Live(tmp_path, large, patience=0.5), asyncio.timeout(180):
        rude = [socket.socket(socket.AF_UNIX) for _ in range(8)]
        for client in rude:
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, str(tmp_path / SOCKET_NAME))
        while heard is None:
            try:
                heard = await asyncio.to_thread(ask, tmp_path)
            except TimeoutError:
                await asyncio.sleep(0.05)
            except ValueError:
                cut_off += 1  # on a busy machine the last piece may come too late
        for client in rude:
            client.close()

    assert len(heard.files) == 4_000
    assert (
        made <= len(rude) + cut_off + 2
    )  # who is turned away costs nothing; one may have been too slow to read


async def test_an_agent_whose_folder_takes_no_socket_ships_all_the_same(tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).mkdir()

    async with Live(tmp_path, report):
        pass


async def test_an_agent_that_does_not_answer_is_said_to_be_stuck(tmp_path: Path) -> None:
    (tmp_path / "web01").mkdir()
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(tmp_path / "web01" / SOCKET_NAME))
        stuck.listen(1)

        with pytest.raises(TimeoutError):
            ask(tmp_path / "web01", patience=0.1)


@pytest.mark.parametrize("said", [b"[]", b"{}", b"hello", b'{"files": 1, "troubles": []}'])
def test_another_program_on_the_socket_is_an_error_of_one_line(tmp_path: Path, said: bytes) -> None:
    folder = tmp_path / "web01"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(folder / SOCKET_NAME))
        stranger.listen(1)

        def answer() -> None:
            client, _ = stranger.accept()
            with client:
                client.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(OperatorError, match="another version"):
            survey(tmp_path, "web01")
        answering.join()


def test_a_report_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    document = json.loads(json.dumps(report().document()))
    document["mood"] = "good"
    document["files"][0]["colour"] = "green"

    assert HostReport.from_document(document) == report()


def test_without_an_agent_the_saved_positions_are_shown_and_that_none_runs(tmp_path: Path) -> None:
    (tmp_path / "web01").mkdir()
    (tmp_path / "web01" / "positions.json").write_bytes(Positions(7, "1-aaaaaaaa").encode())

    (found,) = survey(tmp_path, "")

    assert not found.running
    assert "not running" in render([found])


def put_a_link(path: Path) -> None:
    path.with_name("elsewhere").write_bytes(Positions(7, "1-aaaaaaaa").encode())
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("put", "words"),
    [
        pytest.param(put_a_link, "is a symbolic link, which is not followed", id="link"),
        pytest.param(os.mkfifo, "is no regular file", id="pipe"),
    ],
)
def test_status_and_check_read_no_positions_through_a_link_or_a_pipe(
    tmp_path: Path, put: Callable[[Path], None], words: str
) -> None:
    (tmp_path / "web01").mkdir()
    path = tmp_path / "web01" / "positions.json"
    put(path)

    with pytest.raises(OperatorError) as refused:
        survey(tmp_path, "web01")
    (finding,) = check_state(tmp_path / "web01")

    assert str(refused.value) == f"cannot read {path}: {words}"
    assert (finding.mark, words in finding.text) == (Mark.BAD, True)


async def test_an_agent_that_still_waits_for_its_broker_is_shown_with_the_saved_positions(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "web01"
    folder.mkdir()
    cursor = Cursor("f1", "/log/gone", 12, Identity(1, 0, "", 0, ""), 0)
    (folder / "positions.json").write_bytes(Positions(7, "1-aaaaaaaa", {"f1": cursor}).encode())
    waiting = HostReport("web01", "", 0, running=True, files=(), pid=1, waiting_for="no broker")

    async with Live(folder, lambda: waiting):
        (found,) = await asyncio.to_thread(survey, tmp_path, "web01")

    assert (found.running, found.sequence, found.waiting_for) == (True, 7, "no broker")
    assert [(file.position_bytes, file.reason) for file in found.files] == [(12, "no broker")]


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
