"""Clients can cause only some lines of the log a minute, and their number is logged."""

from logging import ERROR, WARNING

import pytest

from broker.server.log_limits import LogLimit, Repeats


def denial(connection: int, address: str = "10.0.0.1") -> str:
    return f'{address}:{4000 + connection} - cid:{connection} - "v1" - Publish Violation'


@pytest.mark.parametrize(
    ("lines", "taken", "other", "report"),
    [
        pytest.param(
            [denial(1)] * 50,
            10,
            denial(2),
            "10.0.0.1:4001 - cid:1 - 40 more lines were left out of this log",
            id="one connection",
        ),
        pytest.param(
            [denial(number) for number in range(20_000)],
            100,
            denial(30_000, "[fe80::1]"),
            "10.0.0.1 - 19900 more lines were left out of this log",
            id="one address",
        ),
        pytest.param(
            [f"Malformed JetStream API Request: {number}" for number in range(5000)],
            500,
            denial(1),
            "nats-server, ERROR - 4500 more lines were left out of this log",
            id="no connection",
        ),
    ],
)
async def test_a_flood_is_cut_and_counted_and_other_lines_are_passed_on(
    lines: list[str], taken: int, other: str, report: str
) -> None:
    reports = list[str]()
    limit = LogLimit(reports.append)

    assert sum(limit.admit(ERROR, line) for line in lines) == taken
    assert limit.admit(ERROR, other)
    assert limit.admit(WARNING, "a line of the server at another level")
    limit.flush()

    assert reports == [report]
    assert limit.admit(ERROR, lines[0])  # a new window has begun


async def test_a_client_that_is_refused_again_and_again_is_one_line_and_a_count() -> None:
    def refusal(number: int, name: str) -> str:
        return f"10.0.0.1:{4000 + number} - cid:{number} - authentication error - of {name}"

    reports = list[str]()
    repeats = Repeats(reports.append)

    assert sum(repeats.admit(refusal(number, "web01")) for number in range(60)) == 1
    assert repeats.admit(refusal(60, "web02"))
    assert all(repeats.admit("a line of the server") for _ in range(3))
    repeats.flush()

    assert reports == ["10.0.0.1 - authentication error - of web01 - 59 more times in 5 min"]
    assert repeats.admit(refusal(61, "web01"))


async def test_the_counts_of_many_different_lines_are_few() -> None:
    reports = list[str]()
    repeats = Repeats(reports.append)

    for number in range(20_000):
        for _ in range(2):
            repeats.admit(f"10.0.0.1:4000 - cid:1 - authentication error - {number}")
    repeats.flush()

    assert len(reports) == 100
