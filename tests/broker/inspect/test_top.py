"""Rates from one view to the next, of what comes in and of what receivers commit."""

from broker.inspect.message import StoredMessage
from broker.inspect.top import TopView
from broker.wire.message import Origin, Section, Span, encode_origin
from tests.broker.inspect.test_status import a_status


def _message(subject: str, lines: int, size: int) -> StoredMessage:
    section = Section("/var/log/app.log", Span("1", 0, size), size, lines)
    headers = encode_origin(Origin("1-a", 1, (section,)))
    return StoredMessage(subject, 1, 1, headers, b"", size)


def _view() -> TopView:
    """Return the view after two seconds, in which a receiver committed 200 lines and another one was set back."""
    first, second = a_status().partitions
    view = TopView(a_status(partitions=(first, second.model_copy(update={"lines": 9}))))
    for _ in range(10):
        view.add(_message("logs.p0.web01", 5, 1000))
        # what a receiver would quarantine has bytes, but no lines and no host
        view.add(StoredMessage("logs.p1.evil", 1, 1, {"Log-Spans": "x"}, b"", 500))
    moved = (first.model_copy(update={"lines": 240}), second.model_copy(update={"lines": 0}))
    view.rate(a_status(partitions=moved), 2.0)
    return view


def test_rates_are_what_was_counted_since_the_last_view() -> None:
    view = _view()

    first, second = view.partitions[0], view.partitions[1]
    assert (first.rounds, first.lines, first.bytes, first.lines_out) == (5, 25, 5000, 100)
    assert (second.lines, second.bytes, second.lines_out) == (0, 2500, 0)
    assert view.hosts.keys() == {"web01"}
