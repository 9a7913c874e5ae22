"""What is remembered of source files: enough of every host, whatever one of them does."""

from hypothesis import given
from hypothesis import strategies as st

from receiver.consume.received import Received

PUTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from("0123456789"), st.integers(0, 9)),
    max_size=60,
)


def known(received: Received) -> list[tuple[str, str, int]]:
    return [(host, file, end) for host, file, (end, _) in received.items()]


def put(received: Received, host: str, *files: str) -> None:
    for file in files:
        received.put(host, file, (1, 0))


def test_a_host_with_too_many_files_forgets_its_own_oldest() -> None:
    received = Received(most_of_host=3)
    put(received, "quiet", "x")
    put(received, "noisy", "1", "2", "3", "1", "4")

    assert received.get("quiet", "x") == (1, 0)
    assert [file for host, file, _ in known(received) if host == "noisy"] == ["3", "1", "4"]
    assert (received.forgotten, received.losers) == (1, ["noisy"])


def test_of_too_many_files_in_all_those_of_the_largest_hosts_are_forgotten() -> None:
    received = Received(most_of_host=100, most=6)
    put(received, "quiet", "x", "y")
    put(received, "noisy", *"123456789")

    assert [file for host, file, _ in known(received)] == ["x", "y", "6", "7", "8", "9"]
    assert (received.forgotten, received.losers) == (5, ["noisy"])


def test_what_was_told_is_not_told_again() -> None:
    received = Received(most_of_host=2)
    put(received, "a", "1", "2", "3")
    received.settle()
    put(received, "a", "4")
    put(received, "b", "1", "2", "3")

    assert (received.forgotten, received.losers) == (2, ["b"])


def test_a_host_that_was_just_full_is_told_of_when_it_forgets() -> None:
    received = Received(most_of_host=2)
    put(received, "a", "1", "2")
    received.settle()
    put(received, "a", "3")

    assert received.losers == ["a"]


@given(PUTS)
def test_the_same_files_in_the_same_order_leave_the_same_ones(
    puts: list[tuple[str, str, int]],
) -> None:
    first, second = Received(3, 5), Received(3, 5)
    for host, file, end in puts:
        first.put(host, file, (end, 0))
        second.put(host, file, (end, 0))
    third = Received(3, 5)
    for host, file, reached in first.items():
        third.put(host, file, reached)

    assert known(first) == known(second) == known(third)
    assert len(known(first)) <= 5
