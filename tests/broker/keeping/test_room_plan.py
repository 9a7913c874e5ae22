from collections.abc import Iterable
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from broker.keeping.room_dropped import dropped
from broker.keeping.room_marks import Amount
from broker.keeping.room_plan import Memory, Removal, Seen, Sweep
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


def test_the_last_message_of_every_subject_stays() -> None:
    messages = [seen(n, SUBJECTS[n % 3], agent=None) for n in range(1, 10)]

    assert sequences(swept(messages, Sweep(ALL, Memory.FILES, received(100)))) == [1, 2, 3, 4, 5, 6]


def test_the_last_message_of_each_file_stays_for_a_shipper_that_loses_its_positions() -> None:
    messages = [seen(1, file="a"), seen(2, file="b"), seen(3, file="a"), seen(4, file="c"), seen(5)]

    sweep = swept(messages, Sweep(ALL, Memory.FILES, received(100)))

    assert sequences(sweep) == [1, 3]
    assert sequences(swept(messages, Sweep(ALL, Memory.OWNERS, received(100)))) == [1, 2, 3, 4]


def test_a_message_stays_where_any_of_its_sections_is_the_last_of_its_file() -> None:
    messages = [
        told(1, [("a", 1), ("b", 9), ("c", 1)]),
        told(2, [("a", 2), ("c", 2)]),
        told(3, [("c", 3), ("a", 2), ("a", 4)]),
        told(4, [("b", 9), ("b", 3)]),
        told(5, [("c", 4), ("a", 5)]),
    ]

    sweep = swept(messages, Sweep(ALL, Memory.FILES, received(100)))

    assert sequences(sweep) == [2, 3, 4]
    assert [one.sequence for one in sweep.kept()] == [1, 5]


def test_where_nothing_is_to_be_remembered_all_that_is_chosen_goes() -> None:
    messages = [seen(1, end=None), seen(2), seen(3, "logs.p1.db"), seen(4, agent=None)]

    sweep = swept(messages, Sweep(ALL, Memory.NOTHING, received(4)))

    assert sequences(sweep) == [1, 2, 3]
    assert left_by(messages, sweep.removals()) == messages[3:]


def test_the_last_word_of_an_agent_stays_below_plain_clients_messages() -> None:
    claim = seen(3, end=None, agent="2-00000002")
    messages = [seen(1), seen(2, agent=None), claim, seen(4, agent=None), seen(5, agent=None)]

    for memory in (Memory.FILES, Memory.OWNERS):
        assert 3 not in sequences(swept(messages, Sweep(ALL, memory, received(100))))


def test_only_as_much_goes_as_must_and_the_oldest_first() -> None:
    messages = [seen(n, SUBJECTS[n % 3]) for n in range(1, 100)]

    assert sequences(swept(messages, Sweep(Amount(250, 0), Memory.FILES, received(100)))) == [
        1,
        2,
        3,
    ]
    assert sequences(swept(messages, Sweep(Amount(0, 4), Memory.FILES, received(100)))) == [
        1,
        2,
        3,
        4,
    ]


def test_what_is_not_received_stays_and_so_does_what_others_have_to_acknowledge() -> None:
    messages = [seen(n, SUBJECTS[n % 3]) for n in range(1, 31)]

    sweep = swept(
        messages,
        Sweep(ALL, Memory.FILES, received(20, Hold("logs.*.db", 5), Hold("logs.p0.web02", 9))),
    )

    gone = sequences(sweep)
    assert max(gone) < 20
    assert [n for n in gone if SUBJECTS[n % 3] == "logs.p1.db"] == [2, 5]
    assert [n for n in gone if SUBJECTS[n % 3] == "logs.p0.web02"] == [1, 4, 7]


def test_a_beginning_of_a_subject_goes_at_once_and_the_rest_message_by_message() -> None:
    messages = [seen(1), seen(2), seen(3, file="b"), seen(4), seen(5), seen(6)]

    removals = swept(messages, Sweep(ALL, Memory.FILES, received(100))).removals()

    assert [(one.sequence, one.until) for one in removals] == [(1, 3), (4, None), (5, None)]
    assert sum((one.amount for one in removals), Amount()) == Amount(400, 4)


def test_a_range_that_is_dropped_holds_nothing_that_stays() -> None:
    claim = seen(4, end=None, agent="2-00000002")
    messages = [
        seen(1),
        seen(2, "logs.p1.db"),
        seen(3),
        claim,
        *(seen(n, agent=None) for n in (5, 6, 7)),
    ]

    sweep = swept(messages, Sweep(ALL, Memory.OWNERS))

    ranges = dropped(sweep.chosen, sweep.staying())
    assert [(one.host, one.first, one.until, one.messages) for one in ranges] == [
        ("web01", 1, 4, 2),
        ("web01", 5, 7, 2),
    ]
    assert [(one.file, one.start, one.end) for one in ranges[0].files] == [("/a", 0, 3)]


def test_files_of_a_range_that_is_dropped_are_those_of_all_sections() -> None:
    messages = [told(1, [("a", 3), ("b", 5)]), told(2, [("b", 7), ("a", 4), ("b", 8)])]

    (gone,) = dropped(messages, {})

    assert [(one.file, one.file_id, one.start, one.end) for one in gone.files] == [
        ("/a", "a", 0, 4),
        ("/b", "b", 0, 8),
    ]
    assert gone.lines == 5


@dataclass(frozen=True, slots=True)
class Remembered:
    """What shippers of all subjects find in the stream."""

    positions: dict[str, dict[str, tuple[int, str]]]
    newest: dict[str, int]
    agents: dict[str, str]


def remembered(messages: list[Seen]) -> Remembered:
    positions: dict[str, dict[str, tuple[int, str]]] = {one.subject: {} for one in messages}
    for one in messages:
        known = positions[one.subject]
        for section in one.origin.sections if one.origin else ():
            span = section.span
            if known.get(span.file, (-1, ""))[0] < span.end:
                known[span.file] = (span.end, section.path)
    return Remembered(
        positions,
        {one.subject: one.sequence for one in messages},
        {one.subject: one.origin.agent for one in messages if one.origin is not None},
    )


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
def test_what_shippers_find_in_the_stream_is_what_they_would_have_found_without_a_purge(
    messages: list[Seen], until: int, need: int
) -> None:
    sweep = swept(
        [one for one in messages if one.sequence < until],
        Sweep(Amount(need, 0), Memory.FILES, received(until)),
    )

    left = left_by(messages, sweep.removals())

    assert remembered(left) == remembered(messages)
    assert {one.sequence for one in messages} - {one.sequence for one in left} == set(
        sequences(sweep)
    )


@given(MESSAGES, st.integers(0, 3000))
def test_who_owns_a_subject_is_known_whatever_is_dropped(messages: list[Seen], need: int) -> None:
    sweep = swept(messages, Sweep(Amount(need, 0), Memory.OWNERS))

    left = left_by(messages, sweep.removals())

    assert remembered(left).newest == remembered(messages).newest
    assert remembered(left).agents == remembered(messages).agents
    named = dropped(sweep.chosen, sweep.staying())
    assert sum(one.messages for one in named) == len(messages) - len(left)
    assert not [
        one
        for one in left
        for gone in named
        if one.subject == gone.subject and gone.first <= one.sequence < gone.until
    ]


@given(MESSAGES, st.integers(1, 20), st.integers(1, 20))
def test_two_keepers_at_once_take_no_more_than_one_alone_could(
    messages: list[Seen], one_until: int, other_until: int
) -> None:
    plans = [
        swept(
            [one for one in messages if one.sequence < until],
            Sweep(ALL, Memory.FILES, received(until)),
        ).removals()
        for until in (one_until, other_until)
    ]

    assert remembered(left_by(messages, plans[0] + plans[1])) == remembered(messages)


def test_a_sweep_ends_when_it_has_chosen_enough_to_go_about_at_once() -> None:
    sweep = swept([seen(n) for n in range(1, 10_100)], Sweep(ALL, Memory.FILES, received(10_100)))

    assert sweep.is_done
    assert len(sweep.chosen) == 10_000


def test_a_sweep_of_messages_with_many_sections_ends_sooner() -> None:
    many = [("a", 1)] * 200
    messages = [told(n, many) for n in range(1, 1_000)]

    assert len(swept(messages, Sweep(ALL, Memory.NOTHING)).chosen) == 500


def test_what_means_more_than_itself_to_the_server_is_taken_out_by_sequence() -> None:
    messages = [seen(n, "logs.p0.>", agent=None) for n in (1, 2)]

    sweep = swept(messages, Sweep(ALL, Memory.NOTHING))

    assert [(one.sequence, one.until) for one in sweep.removals()] == [(1, None), (2, None)]
