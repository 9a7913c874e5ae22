"""The report of a running agent on its socket, for clients of every kind, and the table of it."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from nats_logship.app.table import show
from nats_logship.wire.subjects import make_token
from shipper.status.live import ask, require_alone, status_socket
from shipper.status.report import FileStatus, HostReport
from shipper.status.show import render
from tests.shipper.conftest import NOBODY, as_user
from tests.support.processes import Process, Processes, wait_until

STRANGER = 65533  # a user


def file_behind(size: int) -> FileStatus:
    path, end = f"/log/{size}\x1b.log", 4096 + size
    return FileStatus(path=path, state="following", size_bytes=end, position_bytes=4096)


def report(host: str = "web01", files: int = 1) -> HostReport:
    return HostReport(
        host=host,
        running=True,
        files=tuple(map(file_behind, range(files))),
        pid=os.getpid(),
        troubles=("/log/x\udcff: may not be read",),
    )


def name_of(host: str) -> str:
    """Return the name of the socket on which the agent of a host listens."""
    names = Path("/proc/net/unix").read_text("utf-8", "replace").split()
    (name,) = {name for name in names if name.startswith(f"@{prefix_of(host)}")}
    return f"\0{name[1:]}"


def prefix_of(host: str) -> str:
    return f"logship/agent/{make_token(host)[:64]}/"


async def test_a_report_arrives_unchanged(own_host: str) -> None:
    long = report(f"{'x' * 60}.{'y' * 60}.{'z' * 60}.{own_host[-40:]}")

    async with (
        status_socket(own_host, lambda: report(own_host)),
        status_socket(long.host, lambda: long),
    ):
        one, another, everybody = await ask(own_host), await ask(long.host), await ask()

    assert one == ([report(own_host)], [])
    assert another == ([long], [])
    assert all(each in everybody[0] for each in (report(own_host), long))
    assert await ask(own_host) == ([], [])


async def test_of_two_agents_of_a_host_the_status_names_the_one_that_ships(own_host: str) -> None:
    older, newer = (report(own_host).model_copy(update={"agent": f"{n}-a"}) for n in "12")

    async with status_socket(own_host, lambda: older), status_socket(own_host, lambda: newer):
        reports, _ = await ask(own_host)

    heads = {one.agent: str(render(one)[0]) for one in reports}
    assert f": pid {os.getpid()} has taken over and ships; " in heads["1-a"]
    assert f"running, pid {os.getpid()}, " in heads["2-a"]


async def test_clients_that_never_read_do_not_block_others(own_host: str) -> None:
    large = report(own_host, files=4_000)  # more than a socket buffers

    async with status_socket(own_host, lambda: large):
        name = name_of(own_host)
        idle = [await asyncio.open_unix_connection(name, limit=1) for _ in range(4)]
        answers = await ask(own_host)
        for _, writer in idle:
            writer.close()

    assert answers == ([large], [])


def test_an_agent_that_ends_while_it_answers_logs_no_error(
    own_host: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def end() -> None:
        async with status_socket(own_host, lambda: report(own_host, files=4_000)):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(name_of(own_host))
                await asyncio.to_thread(client.recv, 1)
                await ask(own_host)  # by then the first answer waits for its client

    asyncio.run(end())

    assert caplog.text == ""


async def test_agents_without_a_valid_answer_are_named_and_the_others_shown(
    own_host: str, processes: Processes
) -> None:
    drips = "import itertools; all(c.send(b' ') and not time.sleep(0.1) for _ in itertools.count())"
    does = ("time.sleep(60)", drips, "c.sendall(b'[3]'); c.close()", "c.close()")
    mute = [listening(processes, f"mute{n}", own_host, code) for n, code in enumerate(does)]

    async with status_socket(own_host, lambda: report(own_host).model_copy(update={"pid": 1})):
        reports, silent = await ask(own_host, patience=2)

    assert [one.pid for one in reports] == [os.getpid()]  # from the kernel, not from the report
    assert {one.pid for one in silent} == {one.pid for one in mute}


def listening(processes: Processes, name: str, host: str, does: str) -> Process:
    """Start a process that listens as an agent, and runs code on its client `c`."""
    address = f"\0{prefix_of(host)}"
    code = f"""
import os, socket, time
s = socket.socket(socket.AF_UNIX)
s.bind({address!r} + str(os.getpid()))
s.listen(8)
print('listens', flush=True)
c, _ = s.accept()
{does}
time.sleep(60)
"""
    process = processes.start(name, [sys.executable, "-c", code])
    wait_until("it listens", lambda: "listens" in process.read_log(), 20, [process])
    return process


two_users = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for two users")


@two_users
async def test_another_user_receives_no_report(own_host: str) -> None:
    async with status_socket(own_host, lambda: report(own_host)):
        client = socket.socket(socket.AF_UNIX)
        with as_user(STRANGER):
            client.connect(name_of(own_host))
        reader, writer = await asyncio.open_unix_connection(sock=client)
        assert await reader.read() == b""
        writer.close()


@two_users
async def test_a_socket_of_another_user_stops_no_agent(own_host: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        with as_user(STRANGER):
            listener.bind(f"\0{prefix_of(own_host)}stranger")
            listener.listen(2)
        for user in (0, NOBODY):
            with as_user(user):
                await require_alone(own_host, "broker")


def test_the_table_has_files_behind_first_and_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(*render(report(files=100)))

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 103
    assert lines[0].startswith(f"host web01: running, pid {os.getpid()}, no ack since it started; ")
    assert "/log/99\\x1b.log" in lines[2]
    assert all(line.isprintable() for line in lines)
    assert lines[-1].startswith("not followed: /log/x")
