"""A copy of another site's stream becomes a stream of its own: what that takes, and what it may lack. Decides only.

The sequences go on where the copy ended, so that shippers and receivers that come over go on by compare-and-set as if
nothing had happened: a shipper whose last lines the copy lacks is told so by the sequence that it expects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from broker.provision.comparing import Wanted
from broker.provision.plan import merge
from broker.provision.steps import Kind, Plan
from broker.topology import mirrored_site
from broker.wire.streams import CONFIG_BUCKET, POSITIONS_BUCKET, StreamLayout, subjects_in

__all__ = ["Copy", "copied", "copy_of", "promotion"]

_BUCKETS = {f"KV_{name}": (f"$KV.{name}.>",) for name in (CONFIG_BUCKET, POSITIONS_BUCKET)}


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy as it stands: `lag` messages were missing when the other site was last heard, `heard` ago (None: never)."""

    site: str
    last_sequence: int
    last_time: str
    lag: int
    heard: timedelta | None


def copy_of(info: Mapping[str, Any]) -> Copy | None:
    """Return what a stream's info tells of it as a copy; None where it is none."""
    site = mirrored_site(info["config"])
    if site is None:
        return None
    mirror, state = info.get("mirror") or {}, info["state"]
    active = mirror.get("active", -1)
    return Copy(
        site,
        state["last_seq"],
        state["last_ts"],
        mirror.get("lag", 0),
        None if active < 0 else timedelta(microseconds=active // 1000),
    )


def copied(layout: StreamLayout) -> tuple[str, ...]:
    """Return the streams that are copies at a site that copies another one."""
    return (*layout.names, *_BUCKETS)


def promotion(configs: Mapping[str, Mapping[str, Any]], layout: StreamLayout) -> Plan:
    """Return the steps that make streams of the copies among `configs`; what is none already stays.

    The layout is that of all partitions that exist.
    """
    subjects = {name: subjects_in(name, layout) for name in layout.names} | _BUCKETS
    return merge(
        (
            Wanted(
                Kind.STREAM,
                name,
                {"subjects": list(subjects[name]), "mirror": None, "mirror_direct": False},
            ),
            configs[name],
        )
        for name in subjects
        if name in configs
    )
