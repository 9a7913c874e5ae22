"""The peers, by name, and the kinds of faults that every suite can be struck with."""

from bench.field.fluent_bit import FLUENT_BIT
from bench.field.peer import Peer
from bench.field.rsyslog import RSYSLOG
from bench.field.syslog_ng import SYSLOG_NG

__all__ = ["COMMON", "PEERS"]

PEERS: dict[str, Peer] = {peer.name: peer for peer in (RSYSLOG, SYSLOG_NG, FLUENT_BIT)}

COMMON: dict[str, tuple[str, ...]] = {
    "processes": tuple(
        f"{what}-{whom}"
        for what in ("kill", "stop", "end")
        for whom in ("shipper", "broker", "driver")
    ),
    "lines": (
        "swallow-host",
        "swallow-receiver",
        "mute-host",
        "deafen-receiver",
        "half-open-host",
        "half-open-receiver",
        "reset-host",
        "reset-receiver",
        "flap-host",
        "slow-host",
        "kill-unseen-shipper",
    ),
    "disks": ("full-central", "nearly-full-central", "read-only-central", "power-central"),
}
"""Kinds by family. A broker's faults are left out but for those of its process: where there is none, they would hit the
receivers' disk or line a second time."""
