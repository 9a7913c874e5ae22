"""What an operator takes from a line: the command that it quotes, about the partition that it speaks of."""

import pytest

from tests.chaos.operating import advice


@pytest.mark.parametrize(
    ("words", "command"),
    [
        pytest.param(
            "partition 2: key p2 is gone: `logreceiver offsets set --partition 2 --to 41` goes on",
            "logreceiver offsets set --partition 2 --to 41",
            id="as it stands",
        ),
        pytest.param(
            "partition 1: /state/p1.journal is damaged: accept them by `logreceiver offsets set`",
            "logreceiver offsets set --partition 1",
            id="the partition that the line is about",
        ),
        pytest.param(
            "key p0 of bucket B: `logreceiver offsets show --history` has its older revisions, "
            "`logreceiver offsets set` writes one back",
            "logreceiver offsets set --partition 0",
            id="what writes, not what shows",
        ),
        pytest.param("the broker refuses; run `logbroker apply`", "logbroker apply", id="apply"),
        pytest.param("another receiver has taken it over", "", id="nothing to do"),
    ],
)
def test_a_line_is_taken_at_its_word(words: str, command: str) -> None:
    assert advice(words) == command.split()
