"""What an operator says of a receiver's partitions, and what it comes to."""

import pytest

from broker.granting.book import InvalidEntry, Key
from broker.granting.identity import Kind
from broker.granting.partitions import partitions_of


@pytest.mark.parametrize(
    ("name", "words", "partitions"),
    [
        pytest.param("3", [], (3,), id="by name"),
        pytest.param("all", [], (), id="all by name"),
        pytest.param("central", ["3"], (3,), id="one"),
        pytest.param("3", ["4"], (4,), id="another than the name"),
        pytest.param("central", ["5,0", "3", "3"], (0, 3, 5), id="several"),
        pytest.param("central", ["all"], (), id="all"),
    ],
)
def test_a_receiver_gets_what_is_said(
    name: str, words: list[str], partitions: tuple[int, ...]
) -> None:
    assert partitions_of(Key(Kind.RECEIVER, name), words) == partitions


@pytest.mark.parametrize(
    ("key", "words", "said"),
    [
        pytest.param(Key(Kind.RECEIVER, "central"), [], "say which partitions", id="none"),
        pytest.param(Key(Kind.RECEIVER, "3"), ["x"], "neither numbers nor all", id="word"),
        pytest.param(Key(Kind.RECEIVER, "3"), ["0,all"], "neither numbers nor all", id="both"),
        pytest.param(Key(Kind.RECEIVER, "3"), ["-1"], "neither numbers nor all", id="negative"),
        pytest.param(Key(Kind.RECEIVER, "3"), ["²"], "neither numbers nor all", id="superscript"),
        pytest.param(Key(Kind.HOST, "3"), ["3"], "a host has none", id="host"),
    ],
)
def test_what_says_nothing_of_partitions_is_refused(key: Key, words: list[str], said: str) -> None:
    with pytest.raises(InvalidEntry, match=said):
        partitions_of(key, words)
