"""Subjects, host names and partitions: who may be called what, and where their lines go.

Both ends check every name, since `/` and `..` are legal in a NATS subject and a file path is made of it later.
"""

import hashlib
import re
from dataclasses import dataclass

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193
_MAX_HOST_BYTES = 253
_FORBIDDEN = re.compile(r"[\s*>/\x00-\x1f\x7f-\x9f]")
_LOOPBACK = re.compile(
    r"(ip6-)?(localhost|loopback)[46]?(\.localdomain[46]?)?|127(\.[0-9]+){3}", re.IGNORECASE
)
SHARED_NAME = (
    "the host is called {}, as any other machine without a name is, and the agents of both would "
    "end each other; give --host"
)
"""What is said of a name that is no machine's own."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
_HASHED = "="
_WAKES = 8
_READERS = 24
_PARTITION = re.compile(r"p(0|[1-9][0-9]{0,5})")


class InvalidHost(ValueError):
    """A host name that may not stand in a subject or in a file name."""


class InvalidSubject(ValueError):
    """A subject that is not `logs.p<partition>.<host>`."""


def validate_host(host: str) -> str:
    """Return `host` if both ends accept it, else raise `InvalidHost` with the reason.

    At most 253 bytes of UTF-8 (the length of a domain name, RFC 1035); dots separate non-empty tokens.
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


def is_shared_name(host: str) -> bool:
    """Whether a host's name is one that every machine has of itself, such as `localhost`."""
    return _LOOPBACK.fullmatch(host) is not None


def partition_of(host: str, partitions: int) -> int:
    """Return the partition of a host: FNV-1a 32 of its name modulo the number of partitions.

    The function of the Go shipper (hash/fnv New32a) and, for names of one token, of nats-server's
    `{{partition(n,…)}}`. Partitions count from 0.
    """
    digest = _FNV_OFFSET
    for byte in host.encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return digest % partitions


@dataclass(frozen=True, slots=True)
class Subject:
    """Where the lines of a host are published: `logs.p<partition>.<host>`; a host may hold dots."""

    partition: int
    host: str

    def __str__(self) -> str:
        return f"logs.p{self.partition}.{self.host}"

    @classmethod
    def for_host(cls, host: str, partitions: int) -> "Subject":
        """Return the subject of a host; raise `InvalidHost` when the name is not allowed."""
        return cls(partition_of(validate_host(host), partitions), host)

    @classmethod
    def parse(cls, subject: str) -> "Subject":
        """Read a subject off the wire; raise `InvalidSubject` or `InvalidHost` for anything that we would not send."""
        prefix, _, rest = subject.partition(".")
        token, _, host = rest.partition(".")
        found = _PARTITION.fullmatch(token)
        if prefix != "logs" or found is None:
            raise InvalidSubject(f"subject {subject!r} is not logs.p<partition>.<host>")
        return cls(int(found[1]), validate_host(host))


def partition_filter(partition: int) -> str:
    """Return the subject filter that takes in every host of a partition."""
    return f"logs.p{partition}.>"


def host_filter(host: str) -> str:
    """Return the subject filter that takes in a host's lines, whatever the number of partitions was."""
    return f"logs.*.{host}"


def consumer_name(partition: int) -> str:
    """Return the name of the durable pull consumer of a partition."""
    return f"receiver-p{partition}"


def wake_name(partition: int, epoch: int) -> str:
    """Return the name of the throw-away consumer by which a partition's owner hears that there is something for it.

    Owners have epochs of their own, so those that follow each other closely do not take it from each other.
    """
    return f"wake-p{partition}-{epoch % _WAKES}"


def wake_names(partition: int) -> tuple[str, ...]:
    """Return all names that a partition's wake-up consumer can have, so that a receiver's rights can be limited to them."""
    return tuple(wake_name(partition, epoch) for epoch in range(_WAKES))


def count_name(partition: int) -> str:
    """Return the name of the consumers by which a partition's receiver counts others' messages.

    Its rights are to make and to remove them, not to read from them.
    """
    return f"count-p{partition}"


def registry_consumer(host: str) -> str:
    """Return the name of the throw-away consumer through which a host's shipper reads its own headers back."""
    return f"shipper-{own_token(host)}"


def reader_names(own: str) -> tuple[str, ...]:
    """Return all names of the throw-away consumers by which a monitor reads, whose own token is `own`."""
    return tuple(f"reader-{own}-{number}" for number in range(_READERS))


def inbox_of(name: str) -> str:
    """Return where a host or a receiver hears answers, a prefix of one token: rights to it cover nobody else's."""
    return f"_INBOX_{own_token(name)}"


def own_token(name: str) -> str:
    """Return a name as one token of a subject, and as a part of a consumer's name.

    That may hold no dots and at most 255 bytes: names that do not fit go by their SHA-256, behind a sign that no name
    may hold which stands for itself. Else a host called like the hash of another would hear that one's answers.
    """
    plain = _PLAIN_NAME.fullmatch(name)
    return name if plain else _HASHED + hashlib.sha256(name.encode()).hexdigest()[:32]
