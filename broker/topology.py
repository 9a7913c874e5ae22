"""What must exist on the broker, as values: the streams, the buckets, the consumers. Declares; never talks to a server."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal

from broker.wire.streams import (
    CONFIG_BUCKET,
    MAX_PAYLOAD,
    OFFSETS_BUCKET,
    POSITIONS_BUCKET,
    StreamLayout,
    stream_names,
    subjects_in,
)

__all__ = ["UNBOUNDED", "Topology", "is_computed", "mirrored_site"]

UNBOUNDED = -1
"""A limit of the stream that does not limit."""

_NANOSECONDS = 1_000_000_000
_COMPUTED = "logship.computed_max_bytes"  # metadata of the stream
# the shortest that nats-server takes: a stream has one memory of Nats-Msg-Id for all of its hosts, in which one host's
# message would be the duplicate of another's
_DUPLICATE_WINDOW = timedelta(milliseconds=100)


@dataclass(frozen=True, slots=True)
class Topology:
    """The whole declaration, from which the streams follow.

    A limit of -1 does not limit, and None leaves what is there (of `replicas`, 1 at first). Sizes are bytes; messages
    are rounds of lines. `mirror` is another
    site: the stream and the number of partitions are copies of those there, and take nothing else; '' ends that. `sources`
    are sites whose lines come in beside one's own. `room` is the limit in bytes that was computed from the store, and
    counts instead of `max_bytes`, which is what somebody asked for. Where nobody told the number of partitions, the one that is stored counts.
    `existing` is how many there are where there were more before: what these hold is received all the same.
    `stream_count` is how many streams they are spread over; limits of bytes and messages are those of all streams together,
    of which each has an equal part.
    """

    partitions: int = 10
    max_age: timedelta = timedelta(days=1)
    max_bytes: int | None = None
    max_msgs: int | None = None
    discard: Literal["old", "new"] = "new"
    replicas: int | None = None
    mirror: str | None = None
    sources: tuple[str, ...] | None = None
    room: int | None = None
    partitions_told: bool = True
    existing: int = 0
    stream_count: int = 1
    streams_told: bool = True

    def following(self, partitions: int | None, streams: int | None) -> "Topology":
        """Return the same with the numbers of partitions and of streams that are stored, unless somebody told other ones."""
        return replace(
            self,
            partitions=self.partitions if self.partitions_told else partitions or self.partitions,
            stream_count=self.stream_count if self.streams_told else streams or self.stream_count,
        )

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

    @property
    def bound(self) -> int | None:
        """The limit in bytes that the streams get together."""
        return self.max_bytes if self.room is None else self.room

    def streams(self) -> tuple[dict[str, Any], ...]:
        """Return the configurations of the streams and of the buckets, as the JetStream API takes them."""
        return (
            *map(self._logs, self.names),
            {
                **self._bucket(OFFSETS_BUCKET, history=16),
                "subjects": [f"$KV.{OFFSETS_BUCKET}.>"],  # a site's receivers are its own
                # with the header `Nats-Rollup: all` the writer of one key would remove those of all others
                "allow_rollup_hdrs": False,
            },
            {
                **self._bucket(CONFIG_BUCKET, history=4),
                **self._origin(f"KV_{CONFIG_BUCKET}", f"$KV.{CONFIG_BUCKET}.>"),
            },
            {
                **self._bucket(POSITIONS_BUCKET, history=1),
                **self._origin(f"KV_{POSITIONS_BUCKET}", f"$KV.{POSITIONS_BUCKET}.>"),
                "allow_rollup_hdrs": False,
                # with the history of one entry a host takes at most one message of this size, whatever it writes
                "max_msg_size": MAX_PAYLOAD,
            },
        )

    def _logs(self, name: str) -> dict[str, Any]:
        layout = StreamLayout(self.all_partitions, self.stream_count)
        return {
            "name": name,
            "retention": "limits",
            "discard": self.discard,
            "max_age": _nanoseconds(self.max_age),
            "duplicate_window": _nanoseconds(_DUPLICATE_WINDOW),
            "allow_direct": True,
            **self._origin(name, *subjects_in(name, layout)),
            "allow_atomic": False,  # a round is one message
            "no_ack": False,
            "sealed": False,
            **self._stored(),
            **_asked_for(
                max_bytes=self._part(self.bound),
                max_msgs=self._part(self.max_msgs),
                metadata=self._metadata(),
                sources=None if self.sources is None else [*map(_copied(name), self.sources)],
            ),
        }

    def _part(self, limit: int | None) -> int | None:
        """Return what of a limit of all streams is that of each."""
        if limit is None or limit == UNBOUNDED:
            return limit
        return max(limit // self.stream_count, 1)

    def _metadata(self) -> dict[str, str] | None:
        return None if self.bound == self.max_bytes else {_COMPUTED: str(self._part(self.bound))}

    def _origin(self, name: str, *subjects: str) -> dict[str, Any]:
        """Return whence a stream has its messages: from publishers, or from another site."""
        return {
            "subjects": [] if self.mirror else list(subjects),
            "mirror": _copied(name)(self.mirror) if self.mirror else None,
            "mirror_direct": bool(self.mirror),
        }

    def _stored(self) -> dict[str, Any]:
        return {"storage": "file", **_asked_for(num_replicas=self.replicas)}

    def _bucket(self, name: str, history: int) -> dict[str, Any]:
        # the same configuration that clients give a key-value bucket, ADR-8
        return {
            "name": f"KV_{name}",
            "retention": "limits",
            "discard": "new",
            "max_msgs_per_subject": history,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
            "deny_delete": True,
            **self._stored(),
        }


def _nanoseconds(length: timedelta) -> int:
    return length // timedelta(microseconds=1) * 1000


def _copied(name: str) -> Callable[[str], dict[str, Any]]:
    """Return what makes of a site's name the place that a stream of this name is copied from."""
    return lambda site: {"name": name, "external": {"api": f"$JS.{site}.API", "deliver": ""}}


def is_computed(config: Mapping[str, Any]) -> bool:
    """Whether the limit in bytes of a stream's configuration was computed from a store, rather than asked for."""
    return (config.get("metadata") or {}).get(_COMPUTED) == str(config.get("max_bytes"))


def mirrored_site(config: Mapping[str, Any]) -> str | None:
    """Return the site that a stream's configuration makes it a copy of, if any."""
    api = ((config.get("mirror") or {}).get("external") or {}).get("api", "")
    return api.removeprefix("$JS.").removesuffix(".API") or None


def _asked_for(**values: Any) -> dict[str, Any]:
    return {field: value for field, value in values.items() if value is not None}
