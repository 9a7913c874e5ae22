"""Pauses: which hosts are not to publish, until when, why, and by whose order: the value of a key in LOGS_CONFIG."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nats_logship.wire.streams import CONFIG_BUCKET

ALL_HOSTS = "*"
PAUSE_KEY = "pause"
PAUSE_SUBJECT = f"$KV.{CONFIG_BUCKET}.{PAUSE_KEY}"
"""Where the entry is written; whoever subscribes hears of each change at once, without a consumer."""


class UnreadablePauses(ValueError):
    """An entry that is no list of pauses."""


class Pause(BaseModel):
    """Hosts that match a glob do not publish; without `until` that lasts until they are resumed.

    In a glob `*` is any run of characters, dots included, `?` one character, `[a-c]` one of some, `[!a-c]` one of the others.
    """

    model_config = ConfigDict(frozen=True)

    hosts: Annotated[str, Field(max_length=253, pattern=r"^[^\s/>\x00-\x1f\x7f]+$")]
    until: AwareDatetime | None = None
    reason: Annotated[str, Field(max_length=500)] = ""
    by: Annotated[str, Field(max_length=200)] = ""

    def is_over(self, now: datetime) -> bool:
        """Whether the pause has ended by time."""
        return self.until is not None and self.until <= now

    def covers(self, host: str) -> bool:
        """Whether the glob matches a host."""
        return fnmatchcase(host, self.hosts)

    def __str__(self) -> str:
        end = f"{self.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if self.until else "resumed"
        by = f" by {self.by}" if self.by else ""
        return f"paused until {end}{by}{f': {self.reason}' if self.reason else ''}"


_PAUSES = TypeAdapter(tuple[Pause, ...])


def decode_pauses(value: bytes) -> tuple[Pause, ...]:
    """Read an entry; an empty one, as after a deletion, has none. Raises `UnreadablePauses`."""
    try:
        return _PAUSES.validate_json(value) if value else ()
    except ValidationError as error:
        first = error.errors()[0]
        raise UnreadablePauses(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def encode_pauses(pauses: Sequence[Pause]) -> bytes:
    """Return the value of the entry."""
    return _PAUSES.dump_json(tuple(pauses))


def active_pause(pauses: Iterable[Pause], host: str, now: datetime) -> Pause | None:
    """Return what pauses a host, of several the one that ends last; None where nothing does."""
    found = [one for one in pauses if one.covers(host) and not one.is_over(now)]
    return max(found, key=lambda one: one.until or datetime.max.replace(tzinfo=UTC), default=None)
