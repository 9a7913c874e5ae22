"""What a line loses, and the program of the kernel's packet filter (classic BPF) that loses it. Values only."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

__all__ = ["EVERYTHING", "Loss", "bytecode"]

_LOAD, _RETURN, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST = 0x20, 0x06, 0x15, 0x35  # linux/bpf_common.h
_RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM: an address where a random number stands
_SOURCE = 14 + 12  # behind an Ethernet header
_LOSE, _GO_ON = 2, 0xFFFFFFFF  # TC_ACT_SHOT, TC_ACT_UNSPEC


@dataclass(frozen=True, slots=True)
class Loss:
    """`share` of the packets, from 0 to 1, that come from the address `source`, or from anywhere."""

    share: float = 1.0
    source: str = ""


EVERYTHING = Loss()


def bytecode(losses: Sequence[Loss]) -> str:
    """Return a filter, as tc takes it, that lets each of the losses try its luck with a packet."""
    steps: list[tuple[int, int, int, int]] = []
    for loss in losses:
        chance = [
            (_LOAD, 0, 0, _RANDOM),
            (_JUMP_IF_AT_LEAST, 1, 0, min(int(loss.share * 2**32), 2**32 - 1)),
        ]
        drop = [*(chance if loss.share < 1 else []), (_RETURN, 0, 0, _LOSE)]
        if loss.source:
            steps += [(_LOAD, 0, 0, _SOURCE)]
            steps += [(_JUMP_IF_EQUAL, 0, len(drop), int(IPv4Address(loss.source)))]
        steps += drop
    steps.append((_RETURN, 0, 0, _GO_ON))
    return f"{len(steps)}," + ",".join(" ".join(map(str, step)) for step in steps)
