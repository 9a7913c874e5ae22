"""Which hosts a list of pauses keeps from publishing, and what its bytes mean."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.wire.pause import (
    Pause,
    UnreadablePauses,
    decode_pauses,
    encode_pauses,
    longest,
)

NOW = datetime(2026, 11, 23, 14, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_what_is_written_is_read_again() -> None:
    pauses = (
        Pause(hosts="web*", until=NOW, reason="päuse\n\x1b", by="ops@box"),
        Pause(hosts="*"),
    )

    assert decode_pauses(encode_pauses(pauses)) == pauses


@pytest.mark.parametrize(
    "value",
    [
        *(b"\xff", b"{}", b"[1]", b"[" * 10_000, b'[{"reason": "no hosts"}]'),
        *(b'[{"hosts": "%s"}]' % hosts for hosts in (b"", b"a b", b"a/b", b"a.>")),
        *(b'[{"hosts": "*", "until": "%s"}]' % end for end in (b"soon", b"2026-11-23T14:30:00")),
        b'[{"hosts": "*", "reason": "%s"}]' % (501 * b"x"),
    ],
)
def test_what_is_no_list_of_pauses_is_refused_in_one_line(value: bytes) -> None:
    with pytest.raises(UnreadablePauses, match=r"^[^\n]+$"):
        decode_pauses(value)


@pytest.mark.parametrize(
    ("glob", "matched", "others"),
    [
        ("*", ("web01", "a.b.c", "münchen"), ()),
        ("web*", ("web", "web01.example.net"), ("db01", "Web01", "my.web01")),
        ("db?.x[!1]", ("db1.x2",), ("db12.x2", "db1.x1", "db1-x2")),
    ],
)
def test_a_glob_matches_whole_names(
    glob: str, matched: tuple[str, ...], others: tuple[str, ...]
) -> None:
    pauses = (Pause(hosts=glob),)

    assert all(longest(pauses, host, NOW) for host in matched)
    assert not any(longest(pauses, host, NOW) for host in others)


def test_of_several_pauses_the_one_counts_that_ends_last() -> None:
    over, later, last, endless = (
        Pause(hosts="web*", until=end) for end in (NOW, NOW + HOUR, NOW + 2 * HOUR, None)
    )

    assert longest((over,), "web01", NOW) is None
    assert longest((over, last, later), "web01", NOW) == last
    assert longest((later, endless, last), "web01", NOW) == endless
