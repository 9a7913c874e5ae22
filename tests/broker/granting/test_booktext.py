"""A book comes back from its text as it was; a damaged or newer one is refused, never read as fewer or more rights."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.granting.book import Book, Entry, Key
from broker.granting.booktext import BookUnreadable, read_book, write_book
from broker.granting.identity import Certificate, Identity, Kind, Password, Proof
from tests.broker.granting.test_book import nkey

NOW = datetime(2026, 11, 21, 17, tzinfo=UTC)
HASHED = "$2b$04$" + "a" * 53
PROOFS = [
    nkey("A"),
    Password("receiver/3", HASHED),
    nkey("C"),
    nkey("B"),
]
BOOK = (
    Book()
    .added(
        [
            Identity(Kind.HOST, "web01.example.net", PROOFS[0]),
            Identity(Kind.RECEIVER, "3", PROOFS[1], (3, 7)),
            Identity(Kind.ADMIN, "ops", PROOFS[2]),
        ],
        NOW,
    )
    .rotated({Key(Kind.HOST, "web01.example.net"): PROOFS[3]}, NOW, timedelta(hours=1))
)


CERTIFIED = Book().added(
    [Identity(Kind.ADMIN, "ops", Certificate('CN=a "quoted" name,O=Ümläut'))], NOW
)


@pytest.mark.parametrize("book", [Book(), Book(4, secured=True), BOOK, CERTIFIED])
def test_a_book_comes_back_as_it_was(book: Book) -> None:
    assert read_book(write_book(book)) == book


def test_a_credential_is_a_line_of_the_text() -> None:
    assert len(write_book(BOOK).splitlines()) == 7 + len(BOOK.entries)


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(write_book(BOOK)), **fields})


def with_entry(**fields: Any) -> str:
    first, *others = json.loads(write_book(BOOK))["credentials"]
    return changed(credentials=[{**first, **fields}, *others])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "damaged", id="empty"),
        pytest.param(write_book(BOOK)[:-40], "damaged", id="cut"),
        pytest.param("[]", "damaged", id="list"),
        pytest.param("{}", "damaged: 'version'", id="object"),
        pytest.param("[" * 100_000, "damaged", id="deep"),
        pytest.param(changed(version=2), "of a newer logship (version 2, not 1)", id="newer"),
        pytest.param(changed(version="1"), "no book", id="version"),
        pytest.param(changed(doors=1), "no book", id="unknown"),
        pytest.param(changed(revision=-1), "no revision", id="revision"),
        pytest.param(changed(secured=0), "not said whether it is secured", id="secured"),
        pytest.param(changed(secured=False), "asks for none", id="open"),
        pytest.param(changed(credentials=None), "damaged", id="nothing"),
        pytest.param(changed(credentials=["x"]), "damaged", id="text"),
        pytest.param(with_entry(only="mondays"), "'only' is not known", id="limit"),
        pytest.param(with_entry(kind="root"), "damaged", id="kind"),
        pytest.param(with_entry(name=7), "a name that is no text", id="name"),
        pytest.param(with_entry(name="a>"), "holds white space", id="host"),
        pytest.param(with_entry(nkey=None), "has no proof", id="no proof"),
        pytest.param(with_entry(certificate="x"), "has no proof", id="two proofs"),
        pytest.param(with_entry(nkey="UAAA"), "no proof that can be read", id="key"),
        pytest.param(with_entry(since="yesterday"), "damaged", id="time"),
        pytest.param(with_entry(since="2026-11-21T16:00:00"), "of no zone", id="zone"),
        pytest.param(with_entry(former=[{}]), "has no proof", id="former"),
        pytest.param(with_entry(partitions=["all"]), "no number", id="partition"),
    ],
)
def test_what_is_no_book_is_refused_in_a_line(text: str, words: str) -> None:
    with pytest.raises(BookUnreadable, match=r"^[^\n]*$") as raised:
        read_book(text)

    assert words in str(raised.value)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.data())
def test_a_book_with_anything_anywhere_is_a_book_or_refused(data: st.DataObject) -> None:
    content = json.loads(write_book(BOOK))
    entry = data.draw(st.sampled_from([content, *content["credentials"]]))
    entry[data.draw(st.sampled_from(sorted(entry)))] = data.draw(_json)
    text = json.dumps(content)

    try:
        book = read_book(text)
    except BookUnreadable:
        return
    assert read_book(write_book(book)) == book


def test_entries_keep_their_times_in_any_zone() -> None:
    there = Entry(
        Identity(Kind.HOST, "a", PROOFS[0]), datetime.fromisoformat("2026-11-21T18:00:00+01:00")
    )
    proof: Proof = (
        read_book(write_book(Book(1, secured=True, entries=(there,)))).entries[0].identity.proof
    )

    assert proof == PROOFS[0]
    assert "2026-11-21T17:00:00Z" in write_book(Book(1, secured=True, entries=(there,)))
