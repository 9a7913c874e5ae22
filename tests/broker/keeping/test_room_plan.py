from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from broker.keeping.room_dropped import dropped
from broker.keeping.room_marks import Amount
from broker.keeping.room_plan import Removal, Seen, Sweep
from broker.keeping.room_received import Frontier, Hold, Received
from broker.wire.message import Origin, Section, Span

ALL = Amount(10**9, 10**9)
SUBJECTS = ("logs.p0.web01", "logs.p0.web02", "logs.p1.db")


def seen(
    sequence: int,
    subject: str = "logs.p0.web01",
    file: str = "a",
    end: int | None = 0,
    agent: str | None = "1-00000001",
) -> Seen:
    """Return a message of a file up to `end` (None: a claim), or a plain client's message."""
    ends = [] if end is None else [(file, end or sequence)]
    return told(sequence, ends, subject, agent)


def told(
    sequence: int,
    ends: Iterable[tuple[str, int]],
    subject: str = "logs.p0.web01",
    agent: str | None = "1-00000001",
) -> Seen:
    """Return a message with sections of files up to these ends, or a plain client's message."""
    sections = tuple(Section(f"/{file}", Span(file, 0, end), end, 1) for file, end in ends)
    origin = None if agent is None else Origin(agent, sequence, sections)
    return Seen(sequence, subject, 100, sequence, origin)


def received(until: int, *holds: Hold) -> Received:
    return Received({n: Frontier(n, until, until) for n in (0, 1)}, holds)


def swept(messages: list[Seen], sweep: Sweep) -> Sweep:
    for message in messages:
        sweep.take(message)
    return sweep


def sequences(sweep: Sweep) -> list[int]:
    return sorted(one.sequence for one in sweep.chosen)


def left_by(messages: list[Seen], removals: list[Removal]) -> list[Seen]:
    """Return what the server has after the removals."""
    return [
        one
        for one in messages
        if not any(
            one.subject == gone.subject
            and (one.sequence == gone.sequence if gone.until is None else one.sequence < gone.until)
            for gone in removals
        )
    ]


def test_all_that_is_received_may_go_the_last_of_each_subject_and_file_too() -> None:
    messages = [seen(1, end=None), seen(2), seen(3, "logs.p1.db", "b"), seen(4, agent=None)]

    sweep = swept(messages, Sweep(ALL, received(4)))

    assert sequences(sweep) == [1, 2, 3]
    assert left_by(messages, sweep.removals()) == messages[3:]


def test_only_as_much_goes_as_must_and_the_oldest_first() -> None:
    messages = [seen(n, SUBJECTS[n % 3]) for n in range(1, 100)]

    assert sequences(swept(messages, Sweep(Amount(250, 0), received(100)))) == [
        1,
        2,
        3,
    ]
    assert sequences(swept(messages, Sweep(Amount(0, 4), received(100)))) == [
        1,
        2,
        3,
        4,
    ]


def test_what_is_not_received_stays_and_so_does_what_others_have_to_acknowledge() -> None:
    messages = [seen(n, SUBJECTS[n % 3]) for n in range(1, 31)]

    sweep = swept(
        messages,
        Sweep(ALL, received(20, Hold("logs.*.db", 5), Hold("logs.p0.web02", 9))),
    )

    gone = sequences(sweep)
    assert max(gone) < 20
    assert [n for n in gone if SUBJECTS[n % 3] == "logs.p1.db"] == [2, 5]
    assert [n for n in gone if SUBJECTS[n % 3] == "logs.p0.web02"] == [1, 4, 7]


def test_a_beginning_of_a_subject_goes_at_once_and_the_rest_message_by_message() -> None:
    class Some:
        def has(self, partition: int | None, subject: str, sequence: int, stored_at: int) -> bool:
            return sequence in {1, 2, 4, 5}

    removals = swept([seen(n) for n in range(1, 7)], Sweep(ALL, Some())).removals()

    assert [(one.sequence, one.until) for one in removals] == [(1, 3), (4, None), (5, None)]
    assert sum((one.amount for one in removals), Amount()) == Amount(400, 4)


def test_a_range_of_each_subject_names_what_is_dropped() -> None:
    messages = [seen(1), seen(2, "logs.p1.db"), seen(3), *(seen(n, agent=None) for n in (4, 5))]

    ranges = dropped(swept(messages, Sweep(Amount(400, 0))).chosen)

    assert [(one.host, one.first, one.until, one.messages) for one in ranges] == [
        ("web01", 1, 5, 3),
        ("db", 2, 3, 1),
    ]
    assert [(one.file, one.start, one.end) for one in ranges[0].files] == [("/a", 0, 3)]


def test_files_of_a_range_that_is_dropped_are_those_of_all_sections() -> None:
    messages = [told(1, [("a", 3), ("b", 5)]), told(2, [("b", 7), ("a", 4), ("b", 8)])]

    (gone,) = dropped(messages)

    assert [(one.file, one.file_id, one.start, one.end) for one in gone.files] == [
        ("/a", "a", 0, 4),
        ("/b", "b", 0, 8),
    ]
    assert gone.lines == 5


MESSAGES = st.lists(
    st.builds(
        told,
        st.just(0),
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=4),
        st.sampled_from(SUBJECTS),
        st.sampled_from([None, "1-00000001", "2-00000002"]),
    ),
    max_size=30,
).map(
    lambda messages: [
        Seen(n, one.subject, one.size, n, one.origin) for n, one in enumerate(messages, 1)
    ]
)


@given(MESSAGES, st.integers(1, 32), st.integers(0, 3000))
def test_what_was_chosen_is_what_goes(messages: list[Seen], until: int, need: int) -> None:
    sweep = swept(messages, Sweep(Amount(need, 0), received(until)))

    left = left_by(messages, sweep.removals())

    assert sequences(sweep) == list(range(1, len(messages) - len(left) + 1))
    assert all(one.sequence < until for one in sweep.chosen)


@given(MESSAGES, st.integers(0, 3000))
def test_all_that_is_dropped_is_named_and_nothing_that_is_not(
    messages: list[Seen], need: int
) -> None:
    sweep = swept(messages, Sweep(Amount(need, 0)))

    left = left_by(messages, sweep.removals())

    named = dropped(sweep.chosen)
    assert sum(one.messages for one in named) == len(messages) - len(left)
    assert not [
        one
        for one in left
        for gone in named
        if one.subject == gone.subject and gone.first <= one.sequence < gone.until
    ]


def test_a_sweep_ends_when_it_has_chosen_enough_to_go_about_at_once() -> None:
    sweep = swept([seen(n) for n in range(1, 10_100)], Sweep(ALL, received(10_100)))

    assert sweep.is_done
    assert len(sweep.chosen) == 10_000


def test_a_sweep_of_messages_with_many_sections_ends_sooner() -> None:
    many = [("a", 1)] * 200
    messages = [told(n, many) for n in range(1, 1_000)]

    assert len(swept(messages, Sweep(ALL)).chosen) == 500


def test_what_means_more_than_itself_to_the_server_is_taken_out_by_sequence() -> None:
    messages = [seen(n, "logs.p0.>", agent=None) for n in (1, 2)]

    sweep = swept(messages, Sweep(ALL))

    assert [(one.sequence, one.until) for one in sweep.removals()] == [(1, None), (2, None)]
