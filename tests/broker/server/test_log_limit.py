"""What anybody may provoke is some lines of the log a minute, and how many more there were."""

from logging import ERROR, WARNING

from broker.server.log_limit import LogLimit


def denial(connection: int, address: str = "10.0.0.1") -> str:
    return f'{address}:{4000 + connection} - cid:{connection} - "v1" - Publish Violation'


async def test_a_connection_has_ten_lines_and_another_one_has_its_own() -> None:
    reports = list[str]()
    limit = LogLimit(reports.append)

    taken = [limit.takes(ERROR, denial(1)) for _ in range(50)]
    other = limit.takes(ERROR, denial(2))
    limit.flush()

    assert taken == [True] * 10 + [False] * 40
    assert other
    assert reports == ["10.0.0.1:4001 - cid:1 - 40 more lines were left out of this log"]


async def test_an_address_has_a_hundred_lines_however_often_it_connects() -> None:
    reports = list[str]()
    limit = LogLimit(reports.append)

    taken = [limit.takes(ERROR, denial(number)) for number in range(20_000)]
    elsewhere = limit.takes(ERROR, denial(30_000, "[fe80::1]"))
    limit.flush()

    assert sum(taken) == 100
    assert elsewhere
    assert reports == ["10.0.0.1 - 19900 more lines were left out of this log"]


async def test_lines_about_no_connection_are_counted_by_their_level() -> None:
    limit = LogLimit(lambda _: None)

    taken = [limit.takes(WARNING, f"Malformed JetStream API Request: {n}") for n in range(5000)]

    assert sum(taken) == 500
    assert limit.takes(ERROR, "JetStream failed to store a msg")


async def test_a_new_window_begins_with_a_report() -> None:
    limit = LogLimit(lambda _: None)
    for _ in range(50):
        limit.takes(ERROR, denial(1))

    limit.flush()

    assert limit.takes(ERROR, denial(1))
