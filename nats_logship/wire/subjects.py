"""Subjects, host names and names of consumers.

Both ends check every host name: NATS allows `/` and `..` in a subject, and the receiver makes a
file path of the name.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

_FNV_OFFSET = 0x811C9DC5  # the constants of FNV-1a, 32 bits
_FNV_PRIME = 0x01000193
_MAX_HOST_BYTES = 253  # as a domain name, RFC 1035
_FORBIDDEN = re.compile(r"[\s*>/\x00-\x1f\x7f-\x9f]")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
_HASHED = "="  # before a digest: no plain name holds it
_WAKES = 8  # names for a partition: owners that follow each other closely never share one
_READERS = 24  # consumers that a monitor can have at a time
_PARTITION = re.compile(r"p(0|[1-9][0-9]{0,5})")


class InvalidHost(ValueError):
    """A host name that is not allowed in a subject or in a file name."""


class InvalidSubject(ValueError):
    """A subject that is not `logs.p<partition>.<host>`."""


def validate_host(host: str) -> str:
    """Return `host` if it is a valid name, else raise `InvalidHost` with the reason.

    At most 253 bytes of UTF-8 (as a domain name, RFC 1035); dots separate non-empty tokens.
    """
    if not host:
        reason = "is empty"
    elif len(host.encode("utf-8", "surrogatepass")) > _MAX_HOST_BYTES:
        reason = f"is longer than {_MAX_HOST_BYTES} bytes"
    elif _FORBIDDEN.search(host) or not host.isprintable():
        reason = "holds white space, '*', '>', '/' or a control character"
    elif "" in host.split("."):
        reason = "starts or ends with a dot, or holds two dots in a row"
    else:
        return host
    raise InvalidHost(f"host name {host!r} {reason}")


def partition_of(host: str, partitions: int) -> int:
    """Return the partition of a host, from 0: FNV-1a 32 of its name modulo `partitions`."""
    digest = _FNV_OFFSET
    for byte in host.encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return digest % partitions


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a host's lines: `logs.p<partition>.<host>`; a host may hold dots."""

    partition: int
    host: str

    def __str__(self) -> str:
        return f"logs.p{self.partition}.{self.host}"

    @classmethod
    def for_host(cls, host: str, partitions: int) -> "Subject":
        """Return the subject of a host; raises `InvalidHost`."""
        return cls(partition_of(validate_host(host), partitions), host)

    @classmethod
    def parse(cls, subject: str) -> "Subject":
        """Read a subject; raises `InvalidSubject` or `InvalidHost`."""
        prefix, _, rest = subject.partition(".")
        token, _, host = rest.partition(".")
        found = _PARTITION.fullmatch(token)
        if prefix != "logs" or found is None:
            raise InvalidSubject(f"subject {subject!r} is not logs.p<partition>.<host>")
        return cls(int(found[1]), validate_host(host))


@lru_cache(100_000)
def parse_subject(subject: str) -> Subject | None:
    """Return the subject of a host's lines; None for any other subject."""
    try:
        return Subject.parse(subject)
    except (InvalidSubject, InvalidHost):
        return None


def partition_filter(partition: int) -> str:
    """Return the filter for all hosts of a partition."""
    return f"logs.p{partition}.>"


def host_filter(host: str) -> str:
    """Return the filter for a host in any partition."""
    return f"logs.*.{host}"


def consumer_name(partition: int) -> str:
    """Return the name of a partition's durable pull consumer."""
    return f"receiver-p{partition}"


def wake_name(partition: int, epoch: int) -> str:
    """Return the name of the ephemeral consumer that wakes the owner of a partition.

    Owners that follow each other closely have different epochs, and so different consumers.
    """
    return f"wake-p{partition}-{epoch % _WAKES}"


def wake_names(partition: int) -> tuple[str, ...]:
    """Return all results of `wake_name` for a partition: a receiver has rights to these only."""
    return tuple(wake_name(partition, epoch) for epoch in range(_WAKES))


def count_name(partition: int) -> str:
    """Return the name of the consumers by which a receiver counts messages of other partitions.

    The receiver has the right to create and delete them, not to read from them.
    """
    return f"count-p{partition}"


def shipper_consumer(host: str) -> str:
    """Return the name of the ephemeral consumer by which a shipper reads its host's headers."""
    return f"shipper-{make_token(host)}"


def reader_names(own: str) -> tuple[str, ...]:
    """Return the names of the ephemeral consumers of the monitor with the token `own`."""
    return tuple(f"reader-{own}-{number}" for number in range(_READERS))


def make_inbox(name: str) -> str:
    """Return the inbox prefix of a client; rights to it cover no other client."""
    return f"_INBOX_{make_token(name)}"


def make_token(name: str) -> str:
    """Return a name as one token of a subject or of a consumer's name.

    A name with characters other than letters, digits, `_` and `-`, or with more than 200, becomes
    `=` and a SHA-256 digest. Other names contain no `=`, so no client can choose a name whose token
    is that of another client.
    """
    plain = _PLAIN_NAME.fullmatch(name)
    return name if plain else _HASHED + hashlib.sha256(name.encode()).hexdigest()[:32]
