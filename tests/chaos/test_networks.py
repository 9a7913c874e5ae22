"""Lines between machines of our own: what is cut, lost, slowed and delayed is so, and comes back when all have let go of it."""

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress

import pytest

from tests.chaos.carrier import can_carry
from tests.chaos.networks import (
    EVERYTHING,
    Loss,
    Machine,
    Slowness,
    bytecode,
    can_shape,
    machines,
)
from tests.chaos.one import enter

_PORT = 9999
_PACKETS = 200
_CANNOT = 77
_SILENCE = 0.5  # seconds after which nothing more comes


def test_a_filter_tries_each_loss_in_turn() -> None:
    one, other = Loss(0.5, "10.98.0.2"), EVERYTHING

    code = bytecode([one, other])

    chance = "32 0 0 4294963256,53 1 0 2147483648,6 0 0 2"
    assert code == f"7,32 0 0 26,21 0 3 174194690,{chance},6 0 0 2,6 0 0 4294967295"


def test_lines_do_as_they_are_told_and_forget_it_when_all_let_go() -> None:
    words = [sys.executable, "-m", "tests.chaos.test_networks"]

    done = subprocess.run(words, capture_output=True, text=True, timeout=180)

    if done.returncode == _CANNOT:
        pytest.skip(done.stdout)
    assert done.returncode == 0, done.stderr


@contextmanager
def _on(machine: Machine) -> Iterator[None]:
    """Have what this thread opens meanwhile on the machine, where it stays."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{machine.name}", os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        assert libc.setns(there, 0) == 0
        yield
        assert libc.setns(here, 0) == 0
    finally:
        os.close(there)
        os.close(here)


def _mouth(machine: Machine | None = None) -> socket.socket:
    """Return a socket for datagrams, on a machine or with us."""
    with _on(machine) if machine else nullcontext():
        mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    mouth.bind((machine.address if machine else "10.99.0.254", _PORT))
    mouth.settimeout(_SILENCE)
    return mouth


def _passes(sender: socket.socket, receiver: socket.socket, size: int = 100) -> int:
    """Send datagrams, and return how many arrive."""
    with suppress(TimeoutError):  # an unplugged line lets packets wait
        for _ in range(_PACKETS):
            sender.sendto(bytes(size), receiver.getsockname())
    arrived = 0
    with suppress(TimeoutError):
        while arrived < _PACKETS:
            receiver.recv(size)
            arrived += 1
    return arrived


def _arrives_at_last(sender: socket.socket, receiver: socket.socket) -> bool:
    """Send datagrams until one arrives: the kernel drops what waits for an address that it asked for in vain."""
    deadline = time.monotonic() + 10  # seconds
    while time.monotonic() < deadline:
        with suppress(TimeoutError):
            sender.sendto(b"1", receiver.getsockname())
            receiver.recv(100)
            return True
    return False


def losses(one: Machine, other: Machine) -> None:
    with _mouth(one) as a, _mouth(other) as b, _mouth() as us:
        deaf = one.clients.inward.lose(EVERYTHING)
        assert (_passes(us, a), _passes(a, us)) == (0, _PACKETS)
        mute = one.clients.outward.lose(EVERYTHING)
        deaf()
        assert (_passes(us, a), _passes(a, us)) == (_PACKETS, 0)
        mute()
        half = one.clients.inward.lose(Loss(0.5))
        assert _PACKETS * 0.3 < _passes(us, a) < _PACKETS * 0.7
        half()
        from_other = one.clients.inward.lose(Loss(source=other.address))
        assert (_passes(us, a), _passes(b, a)) == (_PACKETS, 0)
        from_other()
        assert (_passes(b, a), _passes(a, b)) == (_PACKETS, _PACKETS)


def overlaps(one: Machine, other: Machine) -> None:
    with _mouth(one) as a, _mouth() as us:
        unplugged = [one.clients.unplug(), one.clients.unplug()]
        silent = [one.clients.lose(EVERYTHING), one.clients.lose(EVERYTHING)]
        unplugged.pop(0)()
        silent.pop(0)()
        assert _passes(a, us) == 0
        silent.pop()()
        assert _passes(a, us) == 0
        unplugged.pop()()
        assert _arrives_at_last(a, us)


def slowness(one: Machine, other: Machine) -> None:
    with _mouth(one) as a, _mouth() as us:
        heals = [one.clients.slow(Slowness(rate, 200_000)) for rate in (100_000, 500_000)]
        assert _seconds(lambda: _passes(us, a, 150) == _PACKETS) > 0.25  # 40 kB with headers
        heals.append(one.clients.slow(Slowness(20_000, 5_000)))
        assert _passes(us, a, 150) < _PACKETS
        for heal in heals:
            heal()
        assert _passes(us, a) == _PACKETS


def distance(one: Machine, other: Machine) -> None:
    with _mouth(one) as a, _mouth() as us:
        near = one.clients.delay(2.0)
        us.settimeout(10)
        assert _seconds(lambda: _passes(a, us) == _PACKETS) > 1
        near()
        assert _seconds(lambda: _passes(a, us) == _PACKETS) < 1


def _seconds(holds: Callable[[], bool]) -> float:
    began = time.monotonic()
    assert holds()
    return time.monotonic() - began


def resets(one: Machine, other: Machine) -> None:
    with _on(one):
        listener = socket.create_server((one.address, _PORT))
    near = socket.create_connection((one.address, _PORT))
    far, _ = listener.accept()

    one.clients.reset()

    for end in (near, far):
        with pytest.raises(ConnectionError):
            end.recv(1)
    with socket.create_connection((one.address, _PORT)):
        listener.accept()


if __name__ == "__main__":
    try:
        enter("tests.chaos.test_networks", sys.argv[1:])
    except PermissionError as error:
        print(error)  # noqa: T201
        sys.exit(_CANNOT)
    if not (can_shape() and can_carry()):
        print("no tc or no TUN devices that do what we need")  # noqa: T201
        sys.exit(_CANNOT)
    both = machines(["one", "other"])
    for scene in (losses, overlaps, slowness, distance, resets):
        scene(both["one"], both["other"])
