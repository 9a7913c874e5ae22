"""What an operator takes from a line: the command that it quotes, about the partition that it speaks of."""

from pathlib import Path

import pytest

from bench.processes import Process, wait_until
from tests.chaos.operating import Operator, advice
from tests.chaos.program import Ending, Program


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


class Central:
    """A centre with one receiver, that asks for nothing."""

    def __init__(self, receiver: Program) -> None:
        self.receivers = [receiver]
        self.admin_words: list[str | Path] = []

    def delete_consumer(self, name: str) -> None:
        raise AssertionError(name)

    def offset(self, partition: int) -> int | None:
        raise AssertionError(partition)


def test_an_operator_who_cannot_do_it_now_tells_so_and_tries_again(tmp_path: Path) -> None:
    whole, log = tmp_path / "gone" / "p0.journal", tmp_path / "receiver.log"
    log.touch()
    receiver = Program(Process("receiver", (), log, {}), "receiver")
    receiver.refused = Ending("receiver", 0.0, 78, f"{whole} is damaged; bring it back")
    told: list[str] = []
    operator = Operator(Central(receiver), lambda _, **fields: told.append(str(fields)))
    operator.copies[whole] = b"as it was"
    operator.on_duty.set()

    with operator:
        wait_until("it was tried", lambda: bool(told), 30)
        whole.parent.mkdir()
        wait_until("it goes on", lambda: receiver.refused is None, 30)

    assert "FileNotFoundError" in told[0]
    assert whole.read_bytes() == b"as it was"
