"""New secrets: made once, handed to whoever carries them away, and kept here only as what proves them.

Passwords are 192 random bits, which nobody can guess: bcrypt's cost only has to keep the form that nats-server reads. It
looks at each of them again at every reload, so that the least cost keeps thousands of reloads quick.
"""

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, count

import bcrypt

from broker.client.nkey import new_seed, user_key
from broker.granting.book import Key
from broker.granting.identity import Certificate, Nkey, Password, Proof

__all__ = ["Issued", "Sign", "Way", "issue"]

_SEED_BYTES = 32
_PASSWORD_BYTES = 24
_COST = 4  # the least there is


class Way(Enum):
    """How somebody proves who it is."""

    NKEY = "nkey"
    PASSWORD = "password"
    CERTIFICATE = "certificate"


@dataclass(frozen=True, slots=True)
class Issued:
    """A proof for the book, and the settings that only its bearer may know."""

    proof: Proof
    secret: Mapping[str, str] = field(repr=False)


Sign = Callable[[str], Mapping[str, str]]
"""What makes a certificate for a name: the settings that show it."""


def issue(
    way: Way, key: Key, subject: str = "", taken: Collection[str] = (), sign: Sign | None = None
) -> Issued:
    """Make a new secret; `subject` is the name in a certificate, by default the identity's.

    `taken` are names of users that are not free, `sign` makes a certificate where that is possible here. Raises
    `ConfigurationError` without PyNaCl, and what `sign` raises.
    """
    match way:
        case Way.NKEY:
            seed = new_seed(secrets.token_bytes(_SEED_BYTES))
            return Issued(Nkey(user_key(seed).public), {"nkey_seed": seed})
        case Way.PASSWORD:
            password = secrets.token_urlsafe(_PASSWORD_BYTES)
            hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(_COST)).decode()
            user = _free(
                f"{key.kind.value}/{key.name}", "/{}", taken
            )  # a slash is in no host's name
            return Issued(Password(user, hashed), {"user": user, "password": password})
        case Way.CERTIFICATE:
            name = _free(subject or key.name, ".{}", taken)
            return Issued(Certificate(name), sign(name) if sign else {})


def _free(name: str, more: str, taken: Collection[str]) -> str:
    # users of a server share one space of names
    names = chain([name], (name + more.format(number) for number in count(2)))
    return next(one for one in names if one not in taken)
