"""Who may get in, as values: a host, a receiver, an admin or another site, and what proves it. Never holds a secret."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["OWN_NAME", "Certificate", "Identity", "Kind", "Nkey", "Password", "Proof"]


OWN_NAME = "logbroker.logship.internal"
"""The name in the certificate by which `logbroker run` itself connects to its server; nobody else may be called so."""


class Kind(Enum):
    """What an identity is for."""

    HOST = "host"
    RECEIVER = "receiver"
    ADMIN = "admin"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class Nkey:
    """The public half of a key, `U…`."""

    public: str


@dataclass(frozen=True, slots=True)
class Password:
    """A password as its bcrypt hash, for `user`, a name that no other identity has, nor another kind, nor another password."""

    user: str
    hashed: str


@dataclass(frozen=True, slots=True)
class Certificate:
    """A name in a client certificate, as `verify_and_map` finds it: DNS or e-mail of its SAN, else its subject."""

    subject: str


Proof = Nkey | Password | Certificate


@dataclass(frozen=True, slots=True)
class Identity:
    """One credential.

    `name` is the host of a HOST; for others it is free, unique among their kind. `partitions` are those of a
    RECEIVER, empty for all of them.
    """

    kind: Kind
    name: str
    proof: Proof
    partitions: tuple[int, ...] = ()
