"""The streams and buckets that must exist on the broker, as values."""

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
"""The largest message of a site whose lines are copied, in bytes with headers.

nats-server (2.15.1) drops a copy that it received nothing of for ten seconds, and asks for it
again. A message that takes longer would be sent again for ever, and block all messages after it.
"""
_UNBOUNDED = -1
# the shortest that nats-server takes: Nats-Msg-Id is compared across all hosts of a stream, so a
# longer window could drop one host's message as a duplicate of another's
_DUPLICATE_WINDOW = 100_000_000  # nanoseconds


@dataclass(frozen=True, slots=True)
class Topology:
    """What must exist on a broker; `streams` returns the configurations that follow from it.

    A field that is None keeps the broker's value.
    """

    partitions: int = 10
    """The number of partitions that hosts are spread over."""
    max_age: timedelta = timedelta(days=1)
    max_bytes: int | None = None
    """The limit of all streams together; each stream gets an equal part."""
    discard: Literal["old", "new"] = "new"
    replicas: int | None = None
    """The servers that hold each line; 1 for new streams if None."""
    mirror: str | None = None
    """The site whose lines, positions and number of partitions are copied; '' for none.

    A mirror takes no other lines.
    """
    sources: tuple[str, ...] | None = None
    """Sites whose lines are copied beside the broker's own."""
    may_grow: bool = True
    """Whether `max_bytes` may be above the limit of the existing streams."""
    partitions_given: bool = True
    """Whether an operator gave `partitions`; if not, the stored number wins."""
    existing: int = 0
    """The number of partitions that were ever in use; hosts may have left some."""
    stream_count: int = 1
    """The number of streams that partitions are spread over."""
    streams_given: bool = True
    """Whether an operator gave `stream_count`; if not, the stored number wins."""
    kept: frozenset[str] = frozenset()
    """Fields of the streams of lines that nobody gave: an existing stream keeps its own."""

    @property
    def all_partitions(self) -> int:
        """The number of partitions with a subject, including those that hosts have left.

        At least one per stream: nats-server gives a stream without subjects its own name as one.
        """
        return max(self.partitions, self.existing, self.stream_count)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams of lines."""
        return stream_names(self.stream_count)

    def streams(self) -> tuple[dict[str, Any], ...]:
        """Return the configurations of the streams and buckets, as the JetStream API takes them."""
        return (
            *map(self._configure_lines, self.names),
            # offsets are not copied, since each site has its own receivers
            self._configure_bucket(OFFSETS_BUCKET, history=16),
            self._configure_copied_bucket(CONFIG_BUCKET, history=4),
            {
                **self._configure_copied_bucket(POSITIONS_BUCKET, history=1),
                # with a history of 1 a host can store at most one message of this size
                "max_msg_size": MAX_PAYLOAD,
            },
        )

    def _configure_lines(self, name: str) -> dict[str, Any]:
        layout = StreamLayout(self.all_partitions, self.stream_count)
        sources = (
            None if self.sources is None else [_refer_to_site(name, site) for site in self.sources]
        )
        return {
            "name": name,
            "retention": "limits",
            "discard": self.discard,
            "max_age": self.max_age // timedelta(microseconds=1) * 1000,
            "duplicate_window": _DUPLICATE_WINDOW,
            "allow_direct": True,
            **self._configure_origin(name, subjects_in(name, layout)),
            "allow_atomic": False,  # a round is one message
            "no_ack": False,
            "sealed": False,
            "storage": "file",
            **_drop_none(
                max_bytes=self._divide(self.max_bytes),
                sources=sources,
                num_replicas=self.replicas,
                max_msg_size=self._max_msg_size,
            ),
        }

    @property
    def _max_msg_size(self) -> int | None:
        """The largest message in bytes; a stream with copies must take what others have stored."""
        if self.sources is None:
            return None
        return _UNBOUNDED if self.sources or self.mirror else MAX_COPIED_MESSAGE

    def _divide(self, limit: int | None) -> int | None:
        """Return the part of a limit of all streams that one stream gets."""
        return limit if limit in (None, _UNBOUNDED) else max(limit // self.stream_count, 1)

    def _configure_origin(self, name: str, subjects: Iterable[str]) -> dict[str, Any]:
        """Return where a stream gets its messages: from publishers, or from another site."""
        return {
            "subjects": [] if self.mirror else list(subjects),
            "mirror": _refer_to_site(name, self.mirror) if self.mirror else None,
            "mirror_direct": bool(self.mirror),
        }

    def _configure_copied_bucket(self, name: str, history: int) -> dict[str, Any]:
        bucket = self._configure_bucket(name, history)
        return {**bucket, **self._configure_origin(bucket["name"], bucket["subjects"])}

    def _configure_bucket(self, name: str, history: int) -> dict[str, Any]:
        # as clients configure a key-value bucket (ADR-8)
        return {
            "name": f"KV_{name}",
            "subjects": [f"$KV.{name}.>"],
            "retention": "limits",
            "discard": "new",
            "max_msgs_per_subject": history,
            # with the header `Nats-Rollup: all` a writer of one key could remove all other keys
            "allow_rollup_hdrs": name == CONFIG_BUCKET,
            "allow_direct": True,
            "deny_delete": True,
            "storage": "file",
            **_drop_none(num_replicas=self.replicas),
        }


def _refer_to_site(name: str, site: str) -> dict[str, Any]:
    """Return a reference to the stream of this name at a site, to copy from."""
    return {"name": name, "external": {"api": site_api(site), "deliver": site_prefix(site)}}


def find_mirrored_site(config: Mapping[str, Any]) -> str | None:
    """Return the site that a stream is a mirror of, None for no mirror."""
    external = (config.get("mirror") or {}).get("external") or {}
    found = external.get("deliver", "")
    return found.removeprefix(site_prefix("")) or None


def _drop_none(**values: Any) -> dict[str, Any]:
    return {field: value for field, value in values.items() if value is not None}


def site_prefix(site: str) -> str:
    """Return the prefix of the subjects of copies of a site's streams."""
    return f"SITE.{site}"


def site_api(site: str) -> str:
    """Return the prefix of the API at which a site is asked for copies of its streams."""
    return f"{site_prefix(site)}.API"


def subjects_in(stream: str, layout: StreamLayout) -> tuple[str, ...]:
    """Return the subjects of one of the streams: those of its partitions and no others.

    Messages on other subjects would fill the stream, and no receiver would read them.
    """
    return tuple(
        partition_filter(number)
        for number in range(layout.partitions)
        if layout.stream_of(number) == stream
    )
