from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.wire.subjects import (
    InvalidHost,
    InvalidSubject,
    Subject,
    may_publish,
    partition_of,
    validate_host,
)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "..",
        "../../etc/x",
        "a/b",
        ".hidden",
        "end.",
        "a..b",
        "a b",
        "a\tb",
        "a\nb",
        "a\x00b",
        "a*",
        ">",
        "a.>",
        "a\u2028b",
        "a\u200bb",
        "\udc80",
        "x" * 254,
        "ü" * 127,
    ],
)
def test_a_host_that_could_leave_its_subject_or_folder_is_refused(host: str) -> None:
    with pytest.raises(InvalidHost):
        validate_host(host)


@given(st.text())
def test_whatever_host_is_accepted_is_one_file_name_and_comes_back_from_its_subject(
    host: str,
) -> None:
    try:
        subject = Subject.for_host(host, 10)
    except InvalidHost:
        return

    assert "/" not in host
    assert host not in {".", ".."}
    assert Subject.parse(str(subject)) == subject
    assert not any(token in {"", "*", ">"} for token in str(subject).split("."))


@pytest.mark.parametrize(
    ("host", "digest"),
    [("a", 0xE40C292C), ("foobar", 0xBF9CF968)],  # test vectors of the FNV specification
)
def test_the_partition_is_fnv_1a_of_the_name(host: str, digest: int) -> None:
    assert partition_of(host, 2**32) == digest
    assert partition_of(host, 10) == digest % 10


def test_a_dotted_host_is_hashed_with_its_dots_as_the_go_shipper_does() -> None:
    assert partition_of("web1.example.net", 10) == 5


@given(st.text(min_size=1), st.integers(1, 10_000))
def test_a_partition_counts_from_zero_and_stays_below_their_number(host: str, count: int) -> None:
    try:
        validate_host(host)
    except InvalidHost:
        return

    assert 0 <= partition_of(host, count) < count


@pytest.mark.parametrize(
    "subject",
    [
        "logs",
        "logs.p1",
        "logs.3.web",
        "logs.p03.web",
        "logs.p-1.web",
        "log.p1.web",
        "logs.p1234567.x",
        "logs.p\u0661.x",
    ],
)
def test_a_subject_that_we_would_not_send_is_refused(subject: str) -> None:
    with pytest.raises((InvalidSubject, InvalidHost)):
        Subject.parse(subject)


@pytest.mark.parametrize(
    ("permissions", "may"),
    [
        (None, True),
        ({"subscribe": {"allow": ["x"]}}, True),
        *(({"publish": {"allow": [one]}}, True) for one in ("logs.p0.a.b", "logs.*.a.b", "logs.>")),
        *(
            ({"publish": {"allow": [one]}}, False)
            for one in ("logs.p0", "logs.*.b", "logs.p0.a.b.>")
        ),
        ({"publish": {"deny": ["logs.>"]}}, False),
        ({"publish": {"allow": []}}, False),
    ],
)
def test_rights_are_read_as_the_server_reads_them(permissions: Any, may: bool) -> None:
    assert may_publish(permissions, "logs.p0.a.b") is may
