"""The book of credentials as a value: who gets in, since when, and which older proofs are good for how long.

Never holds a secret. A book that was ever written stays secured, with no entry as well: nobody gets in then, and only a
person who says so opens it again.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain

from broker.client.nkey import is_public
from broker.granting.identity import OWN_NAME, Certificate, Identity, Kind, Nkey, Password, Proof
from broker.wire.streams import MAX_PARTITIONS
from broker.wire.subjects import InvalidHost, validate_host

__all__ = [
    "Book",
    "Difference",
    "Entry",
    "Former",
    "InvalidEntry",
    "Key",
    "account_name",
    "check_identity",
    "named",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASHED = re.compile(r"\$2[abxy]\$[0-9]{2}\$[./A-Za-z0-9]{53}")
_LONGEST_SUBJECT = 1024


class InvalidEntry(ValueError):
    """What cannot stand in a book, or is not in it."""


@dataclass(frozen=True, slots=True)
class Key:
    """What finds an entry: the kind and the name of its identity."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


@dataclass(frozen=True, slots=True)
class Former:
    """A proof that was replaced and is good until a time."""

    proof: Proof
    until: datetime


@dataclass(frozen=True, slots=True)
class Entry:
    """A credential: its identity with the newest proof, and the former ones; times are aware."""

    identity: Identity
    since: datetime
    rotated: datetime | None = None
    former: tuple[Former, ...] = ()

    @property
    def key(self) -> Key:
        """What it is found by."""
        return Key(self.identity.kind, self.identity.name)

    def proofs(self) -> Iterator[Proof]:
        """Give the newest proof, then the former ones."""
        yield self.identity.proof
        yield from (former.proof for former in self.former)

    def at(self, now: datetime) -> "Entry":
        """Return the entry without the proofs that are over by `now`."""
        return replace(self, former=tuple(one for one in self.former if one.until > now))


@dataclass(frozen=True, slots=True)
class Difference:
    """What tells one book from another."""

    added: tuple[Key, ...]
    gone: tuple[Key, ...]
    changed: tuple[Key, ...]

    def __str__(self) -> str:
        return f"{len(self.added)} new, {len(self.gone)} gone, {len(self.changed)} changed"


@dataclass(frozen=True, slots=True)
class Book:
    """All credentials; `revision` counts its changes, `secured` says whether one is needed to get in."""

    revision: int = 0
    secured: bool = False
    entries: tuple[Entry, ...] = ()

    @property
    def is_mapped(self) -> bool:
        """Whether names in certificates are credentials; then every client has to show a certificate."""
        return any(isinstance(one, Certificate) for entry in self.entries for one in entry.proofs())

    def identities(self, now: datetime) -> tuple[Identity, ...]:
        """Return who gets in at `now`, once for each proof that is good."""
        return tuple(
            replace(entry.identity, proof=proof)
            for entry in self.entries
            for proof in entry.at(now).proofs()
        )

    def next_end(self, now: datetime) -> datetime | None:
        """Return when the next proof is over, None when none will be."""
        ends = chain.from_iterable(entry.former for entry in self.entries)
        return min((one.until for one in ends if one.until > now), default=None)

    def found(self, keys: Sequence[Key]) -> tuple[Entry, ...]:
        """Return the entries of the keys, in their order; raises `InvalidEntry` when one is not there or given twice."""
        there = {entry.key: entry for entry in self.entries}
        if missing := [key for key in keys if key not in there]:
            raise InvalidEntry(f"there is no credential of {named(missing)}")
        _refuse_twice(keys)
        return tuple(there[key] for key in keys)

    def added(self, identities: Iterable[Identity], now: datetime) -> "Book":
        """Return the book with new credentials; raises `InvalidEntry` for one that will not do or is there already."""
        new = [Entry(identity, now) for identity in identities]
        there = {entry.key for entry in self.entries}
        if known := [entry.key for entry in new if entry.key in there]:
            raise InvalidEntry(f"{named(known)} has a credential already")
        return self._with(chain(self.entries, new), now)

    def rotated(
        self,
        proofs: dict[Key, Proof],
        now: datetime,
        grace: timedelta,
        partitions: tuple[int, ...] | None = None,
    ) -> "Book":
        """Return the book with new proofs; the former ones, older ones too, are good for `grace` at most.

        Other `partitions` are those of all of their proofs.
        """
        self.found(list(proofs))
        end = now + grace

        def turned(entry: Entry) -> Entry:
            former = (Former(entry.identity.proof, end), *entry.former)
            share = entry.identity.partitions if partitions is None else partitions
            return replace(
                entry,
                identity=replace(entry.identity, proof=proofs[entry.key], partitions=share),
                rotated=now,
                former=tuple(replace(one, until=min(one.until, end)) for one in former),
            )

        return self._with((turned(e) if e.key in proofs else e for e in self.entries), now)

    def revoked(self, keys: Sequence[Key], now: datetime) -> "Book":
        """Return the book without some credentials; it stays secured, and raises `InvalidEntry` as `found` does."""
        gone = {entry.key for entry in self.found(keys)}
        return self._with((entry for entry in self.entries if entry.key not in gone), now)

    def opened(self) -> "Book":
        """Return the book of a broker that lets in everybody; raises `InvalidEntry` while somebody has a credential."""
        if self.entries:
            raise InvalidEntry(
                f"other credentials are left ({len(self.entries)}); revoke them all to open the broker again"
            )
        return Book(self.revision + 1)

    def succeeded_by(self, other: "Book") -> "Book":
        """Return `other`, the book of another broker of a cluster, as this one's successor; itself where they are alike.

        Raises `InvalidEntry` for one that is older, or that would open a secured broker.
        """
        if other == self:
            return self
        if self.secured and not other.secured:
            raise InvalidEntry(
                "it would open this broker; `logbroker credentials revoke --open-again` does"
            )
        if other.revision <= self.revision:
            raise InvalidEntry(
                f"it is not newer than this broker's (revision {other.revision}, not above {self.revision}); "
                "take the other way, or --force"
            )
        return other

    def compared(self, after: "Book") -> "Difference":
        """Return what another book changes."""
        old, new = ({entry.key: entry for entry in book.entries} for book in (self, after))
        return Difference(
            tuple(key for key in new if key not in old),
            tuple(key for key in old if key not in new),
            tuple(key for key in new if key in old and new[key] != old[key]),
        )

    def _with(self, entries: Iterable[Entry], now: datetime) -> "Book":
        book = Book(self.revision + 1, secured=True, entries=tuple(e.at(now) for e in entries))
        book.check()
        return book

    def check(self) -> None:
        """Raise `InvalidEntry` for what nats-server would refuse, or could mistake for something else."""
        for entry in self.entries:
            for proof in entry.proofs():
                check_identity(replace(entry.identity, proof=proof))
        _refuse_twice([entry.key for entry in self.entries])
        kinds = {type(proof) for entry in self.entries for proof in entry.proofs()}
        if {Password, Certificate} <= kinds:  # verify_and_map looks at no password
            raise InvalidEntry(
                "passwords and certificates do not go together: where names in certificates count, nats-server "
                "takes no password; give keys (--with nkey) instead of one of them"
            )
        names = Counter(account_name(proof) for entry in self.entries for proof in entry.proofs())
        if twice := [name for name, count in names.items() if count > 1]:
            raise InvalidEntry(f"{twice[0]!r} is the proof of two credentials")
        _refuse_shared_inboxes([one for one in self.entries if one.key.kind is Kind.RECEIVER])


def check_identity(identity: Identity) -> None:
    """Raise `InvalidEntry` for a name, partitions or a proof that will not do."""
    if identity.kind is Kind.HOST:
        try:
            validate_host(identity.name)
        except InvalidHost as error:
            raise InvalidEntry(str(error)) from None
    elif not _NAME.fullmatch(identity.name):
        raise InvalidEntry(
            f"{identity.kind.value} name {identity.name!r} is not one of letters, digits, '.', '_' and '-', at most 64"
        )
    if identity.partitions and identity.kind is not Kind.RECEIVER:
        raise InvalidEntry(f"a {identity.kind.value} has no partitions; receivers have")
    if not all(0 <= partition < MAX_PARTITIONS for partition in identity.partitions):
        raise InvalidEntry(f"partitions count from 0 and are at most {MAX_PARTITIONS - 1}")
    if identity.kind is Kind.SITE and not isinstance(identity.proof, Nkey):
        raise InvalidEntry("a site proves who it is by a key (--with nkey), and by nothing else")
    if not _is_sound(identity.proof):
        raise InvalidEntry(f"{identity.kind.value} {identity.name} has no proof that can be read")


def account_name(proof: Proof) -> str:
    """Return what nats-server knows the user by: its public key, its name, or the name in its certificate."""
    match proof:
        case Nkey(public):
            return public
        case Password(user, _):
            return user
        case Certificate(subject):
            return subject


def _is_sound(proof: Proof) -> bool:
    match proof:
        case Nkey(public):
            return is_public(public)
        case Password(user, hashed):
            return _is_text(user) and _HASHED.fullmatch(hashed) is not None
        case Certificate(subject):
            return _is_text(subject) and subject != OWN_NAME


def _is_text(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_SUBJECT and text.isprintable() and text == text.strip()


def _refuse_twice(keys: Collection[Key]) -> None:
    if twice := [key for key, count in Counter(keys).items() if count > 1]:
        raise InvalidEntry(f"{named(twice)} is there twice")


def _refuse_shared_inboxes(receivers: Iterable[Entry]) -> None:
    """Refuse a receiver that is called like the key or the user of another one: each would hear the other's answers."""
    owners: dict[str, Key] = {}
    for entry in receivers:
        for name in (entry.identity.name, *map(account_name, entry.proofs())):
            if owners.setdefault(name, entry.key) != entry.key:
                raise InvalidEntry(
                    f"{name!r} means both {owners[name]} and {entry.key}, which would hear each other's answers; "
                    "give one of them another name"
                )


def named(keys: Sequence[Key]) -> str:
    """Return the first of the keys in words, and how many more there are."""
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(map(str, keys[:3])) + more
