"""What tests run in a process of its own: one without rights. Each ends with 0, or raises."""

import asyncio
import concurrent.futures.thread  # noqa: F401 - cannot be imported any more once the rights are gone
import os
import socket
import subprocess
import sys
from pathlib import Path

from shipper.status.live import ask, require_alone
from shipper.tail.scan import NoticeKind
from tests.shipper.host import Host

ROOT = Path(__file__).parents[2]
NOBODY = 65534
STRANGER = 65533


def run_child(what: str, folder: Path) -> None:
    """Run a function of this module in a new process; `folder` is its own, and can be reached by everybody."""
    code = f"import sys; from tests.shipper.children import {what}; {what}(sys.argv[1])"
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr


def without_rights(folder: str) -> None:
    """Take permissions away and give them back, as a user who is bound by them."""
    _become_nobody()
    asyncio.run(_without_rights(Path(folder)))


def _become_nobody() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


async def _without_rights(folder: Path) -> None:
    host = Host(folder, "app.log", "*/*.log")
    closed = folder / "closed"
    closed.mkdir()
    host.write("app.log", b"1\n")
    host.write("closed/a.log", b"a1\n")
    (folder / "app.log").chmod(0)
    closed.chmod(0)
    await host.ship()
    await host.ship()
    assert host.shipped == b""
    said = sorted(notice.path for notice in host.said(NoticeKind.UNREADABLE))
    assert said == [str(folder / "app.log"), str(closed)], said

    (folder / "app.log").chmod(0o600)
    closed.chmod(0o700)
    assert sorted((await host.ship()).split()) == [b"1", b"a1"]

    host.write("app.log", b"2\n")
    host.write("closed/a.log", b"a2\n")
    (folder / "app.log").chmod(0)
    closed.chmod(0)
    taken = await host.ship()
    (folder / "app.log").chmod(0o600)
    closed.chmod(0o700)
    taken += await host.ship()
    assert sorted(taken.split()) == [b"2", b"a2"], taken  # each once, whether it was open or not
    assert len({state.file for state in host.follower.states()}) == 2
    await host.follower.close()


def asked_by_a_stranger(folder: str) -> None:
    """Ask, as another user, an agent of the parent's, who runs as root, of the host that is called like the folder."""
    _become_nobody()
    reports, silent = asyncio.run(ask(Path(folder).name))
    assert (reports, [one.uid for one in silent]) == ([], [0])


def beside_a_stranger(folder: str) -> None:
    """Start beside another user who listens like an agent of the host; `folder` is the host."""
    host = Path(folder).name
    with socket.socket(socket.AF_UNIX) as listener:
        os.seteuid(STRANGER)
        listener.bind(f"\0logship/agent/{host}/stranger")
        listener.listen(1)
        os.seteuid(0)
        asyncio.run(require_alone(host, "broker"))
        _become_nobody()
        asyncio.run(require_alone(host, "broker"))
