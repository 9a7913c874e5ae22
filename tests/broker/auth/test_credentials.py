"""The credential store as a value, and its file: one writer at a time, nothing invalid."""

import json
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.auth.accounts import BuiltinKeys, build_accounts
from broker.auth.credentials import (
    EMPTY,
    CredentialError,
    CredentialKind,
    CredentialStore,
    Holder,
    parse_store,
)
from broker.auth.files import CREDENTIALS, change_credentials, load_credentials
from nats_logship.app.exits import ConfigurationError
from nats_logship.client.nkey import new_seed, user_key

NOW = datetime(2026, 11, 21, 17, tzinfo=UTC)
OWN, ANYBODY = "own", "anybody"


def key(number: int) -> str:
    return user_key(new_seed(number.to_bytes(32, "big"))).public


A, B, C, D = map(key, range(1, 5))
WEB_A, WEB_B = Holder(CredentialKind.HOST, "web-a"), Holder(CredentialKind.HOST, "web-b")
STORE = EMPTY.add([(WEB_A, A, ()), (WEB_B, B, ())], NOW)
EVERY_KIND = EMPTY.add(
    [
        (Holder(CredentialKind.HOST, "wéb01.example.net"), A, ()),
        (Holder(CredentialKind.RECEIVER, "3"), B, (3, 7)),
        *((Holder(kind, "x"), key(10 + n), ()) for n, kind in enumerate(CredentialKind)),
    ],
    NOW,
)


def accepted(store: CredentialStore) -> set[str]:
    """Return the public keys that a server accepts."""
    anybody = "" if store.is_secured else ANYBODY
    accounts = build_accounts(store.credentials, BuiltinKeys(OWN, anybody), stream_count=1)[
        "accounts"
    ]
    return {user["nkey"] for one in accounts.values() for user in one["users"] or ()}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "revoke"]),
            st.sampled_from(list(CredentialKind)),
            st.sampled_from(["a", "b"]),
        ),
        max_size=12,
    )
)
def test_exactly_the_keys_of_current_credentials_are_accepted(
    actions: list[tuple[str, CredentialKind, str]],
) -> None:
    store, good = EMPTY, dict[Holder, str]()
    for number, (action, kind, name) in enumerate(actions, 1):
        holder, fresh = Holder(kind, name), key(number)
        if (action == "add") == (holder in good):
            with pytest.raises(CredentialError, match=rf"{holder}"):
                _done(store, action, holder, fresh)
            continue
        store = _done(store, action, holder, fresh)
        if good.pop(holder, None) is None:
            good[holder] = fresh
        assert parse_store(store.as_json()) == store
    assert accepted(store) == {*good.values(), OWN} | ({ANYBODY} if not store.is_secured else set())


def _done(store: CredentialStore, action: str, holder: Holder, fresh: str) -> CredentialStore:
    if action == "add":
        return store.add([(holder, fresh, ())], NOW)
    return store.revoke([holder])


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(EVERY_KIND.as_json()), **fields})


def with_first(**fields: Any) -> str:
    first, *others = json.loads(EVERY_KIND.as_json())["credentials"]
    return changed(credentials=[{**first, **fields}, *others])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "EOF", id="empty"),
        pytest.param(EVERY_KIND.as_json()[:-40], "Invalid JSON", id="cut"),
        pytest.param("[" * 100_000, "recursion", id="deep"),
        pytest.param(changed(version=2), "version", id="newer"),
        pytest.param(changed(revision=0), "its revision is 0", id="open"),
        pytest.param(with_first(since="2026-11-21T16:00:00"), "timezone", id="zone"),
        pytest.param(with_first(partitions=[-1]), "greater than or", id="partition"),
        pytest.param(with_first(nkey="SUAxyz"), "not the public key", id="seed"),
        pytest.param(with_first(nkey=f"{C[:-1]}A"), "public key", id="mistyped"),
        pytest.param(with_first(nkey=B), "have the same key", id="twice"),
    ],
)
def test_an_invalid_store_is_refused_in_one_line(text: str, reason: str) -> None:
    with pytest.raises(
        CredentialError, match=r"^is damaged, or of a newer logship: [^\n]*$"
    ) as raised:
        parse_store(text)

    assert reason in str(raised.value)


def test_a_damaged_store_is_refused_and_kept(tmp_path: Path) -> None:
    text = STORE.as_json()[:-20]
    (tmp_path / CREDENTIALS).write_text(text)

    with pytest.raises(ConfigurationError, match=r"is damaged.*restore a copy"):
        load_credentials(tmp_path)
    with pytest.raises(ConfigurationError):
        change_credentials(tmp_path, lambda _: pytest.fail("a damaged store was changed"))
    assert (tmp_path / CREDENTIALS).read_text() == text


def test_a_change_waits_for_another_program(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:

        def change(store: CredentialStore) -> CredentialStore:
            waiting.append(pool.submit(change_credentials, tmp_path, lambda store: store))
            with pytest.raises(TimeoutError):
                waiting[0].result(0.2)
            return STORE

        waiting: list[Future[tuple[CredentialStore, CredentialStore]]] = []
        assert change_credentials(tmp_path, change) == (EMPTY, STORE)

        assert waiting[0].result() == (STORE, STORE)
