"""A long way between a machine and its net, without netem: a program that holds each packet for a while.

The kernel hands it what the machine sends, by way of a TAP device that is a port of the machine's bridge, and what it
writes there goes on its way. This file, given the device and the seconds, is that program.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Carrier", "can_carry"]

_TUN = Path("/dev/net/tun")
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # linux/if_tun.h
_MOST = 65535
_JITTER = 0.3  # of the delay, each way
_OVERTAKES = 0.02  # of the packets


def can_carry() -> bool:
    """Whether this machine has such devices, and lets us have them."""
    return os.access(_TUN, os.R_OK | os.W_OK)


@dataclass(frozen=True, slots=True)
class Carrier:
    """A running carrier, and the device that hands it packets."""

    device: str
    process: "subprocess.Popen[bytes]"

    @classmethod
    def started(cls, device: str, bridge: str, seconds: float) -> "Carrier":
        """Start one that holds packets for so long on average, and make its device a port of the bridge."""
        words = [sys.executable, __file__, device, str(seconds)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.read(1)  # the device is there
        process.stdout.close()
        for command in (
            ("master", bridge),
            ("type", "bridge_slave", "flood", "off", "mcast_flood", "off", "bcast_flood", "off"),
            ("up",),
        ):
            subprocess.run(["ip", "link", "set", device, *command], check=True)
        return cls(device, process)

    def end(self) -> None:
        """End it; what it holds is lost."""
        self.process.kill()
        self.process.wait()


def _carry(device: str, seconds: float) -> None:
    line = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(line, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _IFF_TAP | _IFF_NO_PI))
    os.write(1, b".")
    chance = random.Random(device)
    held: list[tuple[float, bytes]] = []
    latest = 0.0
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        if select.select([line], [], [], wait)[0]:
            due = time.monotonic() + seconds * chance.uniform(1 - _JITTER, 1 + _JITTER)
            if chance.random() > _OVERTAKES:
                due = latest = max(due, latest)
            heapq.heappush(held, (due, os.read(line, _MOST)))
        while held and held[0][0] <= time.monotonic():
            os.write(line, heapq.heappop(held)[1])


if __name__ == "__main__":
    _carry(sys.argv[1], float(sys.argv[2]))
