"""What a running agent says of itself on its socket, to clients of every kind, and what stands there without one."""

import asyncio
import getpass
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.wire.subjects import own_token
from shipper.status.live import Answers, ask, status_socket
from shipper.status.report import FileStatus, HostReport, Trouble, reason_for
from shipper.status.show import render
from shipper.tail.tailer import FileState, Stage
from tests.shipper.children import run_child
from tests.support.processes import Process, Processes, wait_until


def report(agent: str = "1-aaaaaaaa", files: int = 1) -> HostReport:
    return HostReport(
        host="web01",
        agent=agent,
        sequence=7,
        running=True,
        files=tuple(
            FileStatus(f"/log/{n}\x1b.log", f"f{n}", "following", "", 4096 + n, 4096, n)
            for n in range(files)
        ),
        pid=os.getpid(),
        user=getpass.getuser(),
        troubles=(Trouble("/log/x", "may not be read"),),
        lost_bytes={"deleted": 5},
        passed_over=("/log/old\udcff",),
    )


def name_of(host: str) -> str:
    """Return the name of the socket on which an agent of the host listens, or could listen."""
    prefix = f"@logship/agent/{own_token(host)[:64]}/"
    lines = Path("/proc/net/unix").read_text("utf-8", "replace").splitlines()
    names = {line.split()[-1] for line in lines if prefix in line}
    return "\0" + min(names, default=f"{prefix}own")[1:]


@pytest.fixture
def host(own_host: str) -> str:
    return own_host


def report_of(host: str) -> HostReport:
    return replace(report(), host=host)


async def test_what_the_agent_says_arrives_as_it_was_said(host: str) -> None:
    long = f"{'x' * 60}.{'y' * 60}.{'z' * 60}.{host[-40:]}"

    async with (
        status_socket(host, lambda: report_of(host)),
        status_socket(long, lambda: report_of(long)),
    ):
        answers, of_long, everybody = await ask(host), await ask(long), await ask()

    assert answers == Answers((report_of(host),))
    assert of_long == Answers((report_of(long),))
    assert all(one in everybody.reports for one in (report_of(host), report_of(long)))
    assert await ask(host) == Answers()


async def test_clients_that_never_read_keep_nobody_from_asking(host: str) -> None:
    # more than a socket takes before somebody reads
    large = replace(report(files=4_000), host=host)

    async with status_socket(host, lambda: large):
        rude = [await asyncio.open_unix_connection(name_of(host), limit=1) for _ in range(4)]
        answers = await ask(host)
        for _, writer in rude:
            writer.close()

    assert answers == Answers((large,))


def told(**changed: Any) -> bytes:
    """Return a report with other values of its own, or `file` of its file."""
    document = report().document() | changed
    document["files"] = [{**one, **changed.get("file", {})} for one in document["files"]]
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "said",
    [
        *(b"[]", b"{}", b"hello", b'{"files": 1, "troubles": []}'),
        *(b"[" * 100_000, b"{"),
        told(file={"path": 5}),
        told(file={"oldest_unshipped_seconds": float("nan")}),
        told(file={"size_bytes": 10**400}),
        told(troubles=[3]),
    ],
)
async def test_another_program_on_the_socket_is_an_error_of_one_line(
    host: str, said: bytes
) -> None:
    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    async with await asyncio.start_unix_server(answer, name_of(host)):
        answers = await ask(host)

    assert answers.reports == ()
    assert "another version" in answers.broken[0]


async def test_agents_that_do_not_answer_are_named_and_the_others_shown(
    own_host: str, processes: Processes
) -> None:
    drips = "import itertools; all(c.send(b' ') and not time.sleep(0.1) for _ in itertools.count())"
    stuck = [
        listening(processes, f"stuck{number}", own_host, does)
        for number, does in enumerate(("time.sleep(60)", drips))
    ]
    lies = json.dumps({**report_of(own_host).document(), "pid": 1, "user": "root"})
    well = listening(processes, "well", own_host, f"c.sendall({lies!r}.encode()); c.close()")

    answers = await ask(own_host, patience=2)

    assert [(one.pid, one.user) for one in answers.reports] == [(well.pid, getpass.getuser())]
    assert len(answers.broken) == len(stuck)
    for one in stuck:
        assert any(f"pid {one.pid} " in words and "stuck" in words for words in answers.broken)


def listening(processes: Processes, name: str, host: str, does: str) -> Process:
    """Start a process that listens as an agent would and does something with `c`, who asks."""
    prefix = f"\0logship/agent/{own_token(host)[:64]}/"
    lines = (
        "import os, socket, time",
        "s = socket.socket(socket.AF_UNIX)",
        f"s.bind({prefix!r} + str(os.getpid()))",
        "s.listen(8)",
        "print('listens', flush=True)",
        "c, _ = s.accept()",
        does,
    )
    process = processes.start(name, [sys.executable, "-c", "\n".join(lines)])
    wait_until("it listens", lambda: "listens" in process.said(), 20, [process])
    return process


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be two users")
async def test_another_user_is_told_nothing_and_why(open_folder: Path) -> None:
    async with status_socket(open_folder.name, report):
        await asyncio.to_thread(run_child, "asked_by_a_stranger", open_folder)


def test_a_report_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    document = json.loads(json.dumps(report().document()))
    document["mood"] = "good"
    document["files"][0]["colour"] = "green"

    assert HostReport.decode(json.dumps(document).encode()) == report()


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


def test_a_table_of_a_hundred_files_has_those_behind_first_and_no_control_characters() -> None:
    shown = render([report(files=100)]).splitlines()

    assert len(shown) == 105
    assert "/log/99\\x1b.log" in shown[3]
    assert all(line.isprintable() for line in shown)
    assert max(map(len, shown[2:])) < 120
    assert "5 B (deleted)" in shown[1]
    assert "not followed: /log/x: may not be read" in shown[-2]
    assert "not followed: 1 files" in shown[-1]
