"""What systemd is told, heard on a datagram socket of the test's own, as sd_notify(3) describes it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.app.service import Notifier, notifier_from


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + name[1:] if name.startswith("@") else name)
        listener.setblocking(False)
        yield name, listener


def heard(listener: socket.socket) -> list[str]:
    said = []
    while True:
        try:
            said.append(listener.recv(4096).decode())
        except BlockingIOError:
            return said


def test_each_state_is_one_datagram(manager: tuple[str, socket.socket]) -> None:
    address, listener = manager
    notifier = notifier_from({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"})

    notifier.ready()
    notifier.reloading(1_234_567_890)
    notifier.status("3 files, all shipped")
    notifier.alive()
    notifier.stopping()
    notifier.close()

    assert notifier.watchdog == 3.0
    assert heard(listener) == [
        "READY=1",
        "RELOADING=1\nMONOTONIC_USEC=1234567",
        "STATUS=3 files, all shipped",
        "WATCHDOG=1",
        "STOPPING=1",
    ]


def test_a_watchdog_waits_longer_for_what_blocks_and_no_less(
    manager: tuple[str, socket.socket],
) -> None:
    address, listener = manager
    notifier = Notifier(address, watchdog=3.0)

    for seconds in (5.0, 2.0):
        with notifier.excused(seconds):
            notifier.ready()
    notifier.close()

    assert heard(listener) == [
        "WATCHDOG_USEC=5000000\nWATCHDOG=1",
        "READY=1",
        "WATCHDOG_USEC=3000000\nWATCHDOG=1",
        "READY=1",
    ]


def test_a_status_is_one_line_and_said_once(manager: tuple[str, socket.socket]) -> None:
    address, listener = manager
    notifier = Notifier(address)

    notifier.status("reading\nREADY=1")
    notifier.status("reading\nREADY=1")
    notifier.close()

    assert heard(listener) == ["STATUS=reading\\nREADY=1"]


@pytest.mark.parametrize("address", ["vsock:2:1234", "/nowhere/notify", "/" + "x" * 300])
def test_a_service_manager_that_cannot_be_reached_costs_nothing(address: str) -> None:
    notifier = Notifier(address)

    notifier.ready()
    notifier.close()


def test_what_the_service_manager_had_no_room_for_is_sent_later(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        notifier = Notifier(str(tmp_path / "notify"))
        notifier.ready()
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)

        notifier.stopping()
        notifier.close()

        assert heard(listener) == ["READY=1", "STOPPING=1"]


def test_the_watchdog_of_another_process_is_none_of_ours() -> None:
    ours = {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}
    other = {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}

    assert notifier_from(ours).watchdog == 1.0
    assert notifier_from(other).watchdog is None
    assert notifier_from({"WATCHDOG_USEC": "soon"}).watchdog is None
    assert ours == {}
