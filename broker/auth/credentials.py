"""The credential store: the holders of credentials, and their public keys. No I/O.

It holds no secret: an nkey here is the public half. Once the store has had a credential, clients
need one. When the last credential is revoked, nobody can connect until an operator adds one, or
stops the broker and removes the credential store; then anyone may connect.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    Field,
    NonNegativeInt,
    ValidationError,
    model_validator,
)

from nats_logship.app.text import format_names
from nats_logship.client.nkey import is_public
from nats_logship.wire.streams import MAX_PARTITIONS
from nats_logship.wire.subjects import validate_host

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class CredentialError(ValueError):
    """A holder that is unknown or known already, an invalid credential, or a damaged store."""


class CredentialKind(Enum):
    """The kinds of credentials; the head of `permissions.py` lists the rights of each."""

    HOST = "host"
    RECEIVER = "receiver"
    ADMIN = "admin"
    MONITOR = "monitor"
    SITE = "site"


class Holder(NamedTuple):
    """The holder of a credential; kind and name together are unique."""

    kind: CredentialKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


def _validate_key(text: str) -> str:
    if not is_public(text):
        raise ValueError(f"{text!r} is not the public key of a user (U...)")
    return text


_PublicKey = Annotated[str, AfterValidator(_validate_key)]
_Partition = Annotated[int, Field(ge=0, lt=MAX_PARTITIONS)]


class Credential(BaseModel, frozen=True, extra="forbid", strict=True):
    """The public key of a holder; `partitions` are a receiver's, empty for all of them."""

    kind: CredentialKind
    name: str
    partitions: tuple[_Partition, ...] = ()
    nkey: _PublicKey
    since: AwareDatetime

    @model_validator(mode="after")
    def _check(self) -> "Credential":
        if self.kind is CredentialKind.HOST:
            validate_host(self.name)
        elif not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.kind.value} name {self.name!r} is not made of at most 64 letters, digits, "
                "'.', '_' and '-'"
            )
        if self.partitions and self.kind is not CredentialKind.RECEIVER:
            raise ValueError(f"a {self.kind.value} has no partitions, only a receiver has")
        return self

    @property
    def holder(self) -> Holder:
        """The holder: kind and name."""
        return Holder(self.kind, self.name)


class CredentialStore(BaseModel, frozen=True, extra="forbid", strict=True):
    """All credentials of a broker; `revision` counts the changes."""

    version: Literal[1]
    revision: NonNegativeInt
    credentials: tuple[Credential, ...]

    @property
    def is_secured(self) -> bool:
        """Whether clients need a credential: from the first one on, even if all are revoked."""
        return self.revision > 0

    @model_validator(mode="after")
    def _check(self) -> "CredentialStore":
        if self.credentials and not self.is_secured:
            raise ValueError("it has credentials, but its revision is 0")
        if len({one.holder for one in self.credentials}) < len(self.credentials):
            raise ValueError("one holder has two credentials")
        if len({one.nkey for one in self.credentials}) < len(self.credentials):
            raise ValueError("two credentials have the same key")
        return self

    def find(self, holders: Iterable[Holder]) -> tuple[Credential, ...]:
        """Return the credentials of the holders, in their order; raises `CredentialError`."""
        known = {one.holder: one for one in self.credentials}
        if unknown := [holder for holder in holders if holder not in known]:
            raise CredentialError(f"there is no credential of {format_names(unknown)}")
        return tuple(known[holder] for holder in holders)

    def add(
        self, new: Sequence[tuple[Holder, str, tuple[int, ...]]], now: datetime
    ) -> "CredentialStore":
        """Return the store with new credentials: each a holder, a public key and partitions.

        Raises `CredentialError` for a holder that has a credential.
        """
        known = {one.holder for one in self.credentials}
        if taken := [holder for holder, _, _ in new if holder in known]:
            raise CredentialError(f"{format_names(taken)} has a credential already")
        made = (
            {**holder._asdict(), "nkey": key, "partitions": partitions, "since": now}
            for holder, key, partitions in new
        )
        return self._replace((*self.credentials, *made))

    def revoke(self, holders: Sequence[Holder]) -> "CredentialStore":
        """Return the store without the holders' credentials; raises `CredentialError`."""
        gone = self.find(holders)
        return self._replace(one for one in self.credentials if one not in gone)

    def as_json(self) -> str:
        """Return the text of the file."""
        return self.model_dump_json(indent=2) + "\n"

    def _replace(self, credentials: Iterable[Credential | dict[str, Any]]) -> "CredentialStore":
        values = {"version": 1, "revision": self.revision + 1}
        try:
            return CredentialStore.model_validate({**values, "credentials": tuple(credentials)})
        except ValidationError as error:
            raise CredentialError(_explain(error)) from None


EMPTY = CredentialStore(version=1, revision=0, credentials=())
"""The store of a broker that never had a credential: clients need none."""


def parse_store(text: str) -> CredentialStore:
    """Return the credential store in a text; raises `CredentialError` with the reason."""
    try:
        return CredentialStore.model_validate_json(text)
    except ValidationError as error:
        raise CredentialError(f"is damaged, or of a newer logship: {_explain(error)}") from None


def _explain(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field, text = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    return text if first["type"] == "value_error" or not field else f"{field}: {text}"
