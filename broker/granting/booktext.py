"""The book of credentials as JSON with a version: written, and read back with distrust. Opens no file.

A key that is not known is an error: what it says might be a limit on somebody.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from broker.granting.book import Book, Entry, Former, InvalidEntry
from broker.granting.identity import Certificate, Identity, Kind, Nkey, Password, Proof

__all__ = ["VERSION", "BookUnreadable", "described", "read_book", "write_book"]

VERSION = 1

_HEAD = {"version", "revision", "secured", "credentials"}
_PROOFS = {"nkey", "user", "password", "certificate"}
_KEYS = {"kind", "name", "partitions", "since", "rotated", "former"} | _PROOFS


class BookUnreadable(ValueError):
    """A text that is no book, is damaged, or was written by a newer program."""


def write_book(book: Book) -> str:
    """Return the text of a book, a credential a line."""
    lines = ",\n".join(f"    {json.dumps(described(e), ensure_ascii=False)}" for e in book.entries)
    head = {"version": VERSION, "revision": book.revision, "secured": book.secured}
    text = json.dumps(head, indent=2).removesuffix("\n}")
    return f'{text},\n  "credentials": [{f"{chr(10)}{lines}{chr(10)}  " if lines else ""}]\n}}\n'


def described(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON holds it, without what does not apply."""
    identity = entry.identity
    return {
        "kind": identity.kind.value,
        "name": identity.name,
        **({"partitions": list(identity.partitions)} if identity.partitions else {}),
        **_proof(identity.proof),
        "since": _time(entry.since),
        **({"rotated": _time(entry.rotated)} if entry.rotated else {}),
        **({"former": [_former(one) for one in entry.former]} if entry.former else {}),
    }


def read_book(text: str) -> Book:
    """Return the book that a text holds; raises `BookUnreadable` with the reason."""
    try:
        book = _book(json.loads(text))
        book.check()
    except BookUnreadable:
        raise
    except InvalidEntry as error:
        raise BookUnreadable(f"is damaged: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BookUnreadable(f"is damaged: {error}") from None
    return book


def _book(content: Mapping[str, Any]) -> Book:
    version = content["version"]
    if isinstance(version, int) and version > VERSION:
        raise BookUnreadable(f"is of a newer logship (version {version}, not {VERSION})")
    if version != VERSION or set(content) != _HEAD:
        raise BookUnreadable("is no book of credentials")
    revision, secured = content["revision"], content["secured"]
    entries = tuple(_entry(one) for one in content["credentials"])
    if type(revision) is not int or revision < 0 or type(secured) is not bool:
        raise BookUnreadable("is damaged: no revision, or not said whether it is secured")
    if entries and not secured:
        raise BookUnreadable("is damaged: it has credentials and asks for none")
    return Book(revision, secured, entries)


def _entry(content: dict[str, Any]) -> Entry:
    if strange := sorted(set(content) - _KEYS):
        raise BookUnreadable(f"is damaged, or of a newer logship: {strange[0]!r} is not known")
    name, partitions = content["name"], content.get("partitions", [])
    if not isinstance(name, str) or not all(type(number) is int for number in partitions):
        raise BookUnreadable("is damaged: a name that is no text, or a partition that is no number")
    rotated = content.get("rotated")
    return Entry(
        Identity(Kind(content["kind"]), name, _proof_of(content), tuple(partitions)),
        _moment(content["since"]),
        None if rotated is None else _moment(rotated),
        tuple(Former(_proof_of(o), _moment(o["until"])) for o in content.get("former", [])),
    )


def _proof(proof: Proof) -> dict[str, str]:
    match proof:
        case Nkey(public):
            return {"nkey": public}
        case Password(user, hashed):
            return {"user": user, "password": hashed}
        case Certificate(subject):
            return {"certificate": subject}


def _proof_of(content: Mapping[str, Any]) -> Proof:
    match {key: content[key] for key in _PROOFS & set(content)}:
        case {"nkey": str(public), **more} if not more:
            return Nkey(public)
        case {"user": str(user), "password": str(hashed), **more} if not more:
            return Password(user, hashed)
        case {"certificate": str(subject), **more} if not more:
            return Certificate(subject)
    raise BookUnreadable(f"is damaged: {content.get('name', 'a former proof')!r} has no proof")


def _former(former: Former) -> dict[str, Any]:
    return {**_proof(former.proof), "until": _time(former.until)}


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise BookUnreadable(f"is damaged: the time {text!r} is of no zone")
    return moment
