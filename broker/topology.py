"""What must exist on the broker, as values: the streams, the buckets, the consumers. Declares; never talks to a server."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from nats_logship.wire.streams import (
    CONFIG_BUCKET,
    MAX_PAYLOAD,
    OFFSETS_BUCKET,
    POSITIONS_BUCKET,
    SLOWEST_LINK,
    StreamLayout,
    stream_names,
)
from nats_logship.wire.subjects import partition_filter

MAX_COPIED_MESSAGE = 10 * SLOWEST_LINK
"""The largest message of a site whose lines others copy, in bytes, headers included.

nats-server (2.15.1) asks for a copy again where nothing of it has come for ten seconds, and drops
what is on its way: a message that takes longer would be sent for ever, and hold up all behind it.
"""
_UNBOUNDED = -1
# the shortest that nats-server takes: a stream has one memory of Nats-Msg-Id for all of its hosts, in which one host's
# message would be the duplicate of another's
_DUPLICATE_WINDOW = 100_000_000  # nanoseconds


@dataclass(frozen=True, slots=True)
class Topology:
    """The whole declaration, from which the streams follow; `partitions` are spread over `stream_count` streams.

    None leaves what is there (of `replicas`, 1 at first); limits are those of all streams together, of which each has an equal part. `mirror` is another site whose lines,
    positions and number of partitions are copied, and nothing else taken; '' ends that. Lines of `sources` come in beside
    one's own. Without `may_grow` a limit in bytes that is there is only lowered. Numbers that nobody told (`_told`) follow what
    is stored. `existing` is how many partitions there were, which are received all the same.
    """

    partitions: int = 10
    max_age: timedelta = timedelta(days=1)
    max_bytes: int | None = None
    discard: Literal["old", "new"] = "new"
    replicas: int | None = None
    mirror: str | None = None
    sources: tuple[str, ...] | None = None
    may_grow: bool = True
    partitions_given: bool = True
    existing: int = 0
    stream_count: int = 1
    streams_given: bool = True

    @property
    def all_partitions(self) -> int:
        """How many partitions there are to be: those that hosts are spread over, and those that they have left.

        Each stream has at least one: a stream without subjects would take those of its own name.
        """
        return max(self.partitions, self.existing, self.stream_count)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams that partitions live in."""
        return stream_names(self.stream_count)

    def streams(self) -> tuple[dict[str, Any], ...]:
        """Return the configurations of the streams and of the buckets, as the JetStream API takes them."""
        return (
            *map(self._logs, self.names),
            # a site's receivers are its own: offsets are not copied
            {**self._bucket(OFFSETS_BUCKET, history=16), "subjects": [f"$KV.{OFFSETS_BUCKET}.>"]},
            {**self._bucket(CONFIG_BUCKET, history=4), **self._bucket_origin(CONFIG_BUCKET)},
            {
                **self._bucket(POSITIONS_BUCKET, history=1),
                **self._bucket_origin(POSITIONS_BUCKET),
                # with the history of one entry a host takes at most one message of this size, whatever it writes
                "max_msg_size": MAX_PAYLOAD,
            },
        )

    def _logs(self, name: str) -> dict[str, Any]:
        layout = StreamLayout(self.all_partitions, self.stream_count)
        sources = None if self.sources is None else [_copied(name, site) for site in self.sources]
        return {
            "name": name,
            "retention": "limits",
            "discard": self.discard,
            "max_age": self.max_age // timedelta(microseconds=1) * 1000,
            "duplicate_window": _DUPLICATE_WINDOW,
            "allow_direct": True,
            **self._origin(name, subjects_in(name, layout)),
            "allow_atomic": False,  # a round is one message
            "no_ack": False,
            "sealed": False,
            "storage": "file",
            **_asked_for(
                max_bytes=self._part(self.max_bytes),
                sources=sources,
                num_replicas=self.replicas,
                max_msg_size=self._largest,
            ),
        }

    @property
    def _largest(self) -> int | None:
        """The largest message of a stream; of one that is itself a copy what others have stored."""
        if self.sources is None:
            return None
        return _UNBOUNDED if self.sources or self.mirror else MAX_COPIED_MESSAGE

    def _part(self, limit: int | None) -> int | None:
        """Return what of a limit of all streams is that of each."""
        return limit if limit in (None, _UNBOUNDED) else max(limit // self.stream_count, 1)

    def _origin(self, name: str, subjects: Iterable[str]) -> dict[str, Any]:
        """Return whence a stream has its messages: from publishers, or from another site."""
        return {
            "subjects": [] if self.mirror else list(subjects),
            "mirror": _copied(name, self.mirror) if self.mirror else None,
            "mirror_direct": bool(self.mirror),
        }

    def _bucket_origin(self, name: str) -> dict[str, Any]:
        return self._origin(f"KV_{name}", [f"$KV.{name}.>"])

    def _bucket(self, name: str, history: int) -> dict[str, Any]:
        # the same configuration that clients give a key-value bucket, ADR-8
        return {
            "name": f"KV_{name}",
            "retention": "limits",
            "discard": "new",
            "max_msgs_per_subject": history,
            # with the header `Nats-Rollup: all` the writer of one key would remove those of all others
            "allow_rollup_hdrs": name == CONFIG_BUCKET,
            "allow_direct": True,
            "deny_delete": True,
            "storage": "file",
            **_asked_for(num_replicas=self.replicas),
        }


def _copied(name: str, site: str) -> dict[str, Any]:
    """Return the place at a site that a stream of this name is copied from."""
    return {"name": name, "external": {"api": site_api(site), "deliver": site_prefix(site)}}


def find_mirrored_site(config: Mapping[str, Any]) -> str | None:
    """Return the site that a stream's configuration makes it a copy of, if any."""
    external = (config.get("mirror") or {}).get("external") or {}
    found = external.get("deliver", "")
    return found.removeprefix(site_prefix("")) or None


def _asked_for(**values: Any) -> dict[str, Any]:
    return {field: value for field, value in values.items() if value is not None}


def site_prefix(site: str) -> str:
    """Return what the subjects begin with by which others copy the streams of a site."""
    return f"SITE.{site}"


def site_api(site: str) -> str:
    """Return the prefix of the API by which other sites ask a site for copies of its streams."""
    return f"{site_prefix(site)}.API"


def subjects_in(stream: str, layout: StreamLayout) -> tuple[str, ...]:
    """Return the subjects of one of the streams: those of its partitions and no others.

    A line on any other subject would be stored, fill the stream, and never be read by a receiver.
    """
    return tuple(
        partition_filter(number)
        for number in range(layout.partitions)
        if layout.stream_of(number) == stream
    )
