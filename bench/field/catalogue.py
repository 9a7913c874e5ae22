"""All systems that are measured, by name: ours, the peers in their fast settings, the floors."""

from pathlib import Path

from bench.field.copying import Copying
from bench.field.fluent_bit import FLUENT_BIT_FAST
from bench.field.logship import Logship
from bench.field.loop import Loop
from bench.field.pair import Pair
from bench.field.rsyslog import RSYSLOG_FAST
from bench.field.syslog_ng import SYSLOG_NG_FAST, SYSLOG_NG_IN_MEMORY
from bench.field.system import Guarantees, System

OURS = Logship().name
_RELP = Guarantees(acked=True, fsynced=False, ordered=True, survives_kill=False)
_FORWARD = Guarantees(acked=True, fsynced=False, ordered=False, survives_kill=False)
_SYNCED = Guarantees(acked=False, fsynced=True, ordered=True, survives_kill=False)


def systems(unpacked: Path) -> dict[str, System]:
    """Return every system, installed or not; the packages of peers are in folders of `unpacked`."""
    every: tuple[System, ...] = (
        Logship(),
        Pair("rsyslog", RSYSLOG_FAST, _RELP, unpacked),
        Pair("syslog-ng", SYSLOG_NG_FAST, _SYNCED, unpacked),
        Pair("syslog-ng-memory", SYSLOG_NG_IN_MEMORY, _SYNCED, unpacked),
        Pair("fluent-bit", FLUENT_BIT_FAST, _FORWARD, unpacked),
        Loop(),
        Copying(),
    )
    return {system.name: system for system in every}
