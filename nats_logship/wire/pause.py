"""Pauses: the hosts that must not publish for a while. The value of key `pause` in LOGS_CONFIG."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from nats_logship.wire.streams import CONFIG_BUCKET

ALL_HOSTS = "*"
PAUSE_KEY = "pause"
PAUSE_SUBJECT = f"$KV.{CONFIG_BUCKET}.{PAUSE_KEY}"
"""The subject of the key: a core NATS subscription receives each change, without a consumer."""


class UnreadablePauses(ValueError):
    """The value is not a list of pauses."""


class Pause(BaseModel):
    """Hosts that match the glob `hosts` do not publish until `until`, or until they are resumed.

    In a glob `*` is any characters, dots too; `?` is one, `[a-c]` one of a set, `[!a-c]` another.
    """

    model_config = ConfigDict(frozen=True)

    hosts: Annotated[str, Field(max_length=253, pattern=r"^[^\s/>\x00-\x1f\x7f]+$")]
    until: AwareDatetime | None = None
    reason: Annotated[str, Field(max_length=500)] = ""
    by: Annotated[str, Field(max_length=200)] = ""

    def is_over(self, now: datetime) -> bool:
        """Whether the pause has ended."""
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
    """Read the value of the key, empty after a deletion; raises `UnreadablePauses`."""
    try:
        return _PAUSES.validate_json(value) if value else ()
    except ValidationError as error:
        first = error.errors()[0]
        raise UnreadablePauses(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def encode_pauses(pauses: Sequence[Pause]) -> bytes:
    """Return the value of the key."""
    return _PAUSES.dump_json(tuple(pauses))


def active_pause(pauses: Iterable[Pause], host: str, now: datetime) -> Pause | None:
    """Return the pause of a host, the one that ends last if there are several."""
    found = [one for one in pauses if one.covers(host) and not one.is_over(now)]
    return max(found, key=lambda one: one.until or datetime.max.replace(tzinfo=UTC), default=None)
