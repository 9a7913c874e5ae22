"""What an operator takes from a line: the command that it quotes, about the partition that it speaks of."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tests.chaos.operating import HarmedStore, Operator, advice
from tests.chaos.program import Ending, Program
from tests.support.processes import Process, wait_until

if TYPE_CHECKING:
    from tests.chaos.world import World


@pytest.mark.parametrize(
    ("words", "command"),
    [
        pytest.param(
            "partition 2: key p2 is gone: `logreceiver offsets set --partition 2 --to 41` goes on",
            "logreceiver offsets set --partition 2 --to 41",
            id="as it stands",
        ),
        pytest.param(
            "key p1 of bucket B is gone: `logreceiver offsets set` writes one back",
            "logreceiver offsets set --partition 1",
            id="the partition that the line is about",
        ),
        pytest.param(
            "key p0 of bucket B: `logreceiver offsets show` says what it was before, "
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


@dataclass
class Centre:
    """A centre with one receiver, that asks for nothing."""

    receivers: list[Program]
    output: Path
    admin_words: list[str | Path] = field(default_factory=list)
    entries: dict[int, bytes] = field(default_factory=dict)

    @property
    def receiver_state(self) -> Path:
        return self.output

    def delete_consumer(self, name: str) -> None:
        raise AssertionError(name)

    def offset(self, _partition: int) -> int | None:
        return 7

    def write_offset(self, partition: int, value: bytes) -> None:
        self.entries[partition] = value


WORDS = "partition 0 is blocked: {} is damaged; bring it back, or `logreceiver offsets adopt --partition 0`"


@pytest.fixture
def centre(tmp_path: Path) -> Centre:
    log = tmp_path / "receiver.log"
    log.touch()
    return Centre([Program(Process("receiver", (), log, {}), "receiver")], tmp_path)


def refuse(centre: Centre) -> Program:
    (receiver,) = centre.receivers
    receiver.refused = Ending("receiver", 0.0, 78, WORDS.format("p0.db"))
    return receiver


def test_an_operator_who_cannot_do_it_now_tells_so_and_tries_again(centre: Centre) -> None:
    store = centre.output / "gone" / "p0.db"
    receiver = refuse(centre)
    told: list[str] = []
    operator = Operator(cast("World", centre), lambda _, **fields: told.append(str(fields)))
    operator.stores[0] = HarmedStore(store, b"as it was", {})
    operator.on_duty.set()

    with operator:
        wait_until("it was tried", lambda: bool(told), 30)
        store.parent.mkdir()
        wait_until("it goes on", lambda: receiver.refused is None, 30)

    assert "FileNotFoundError" in told[0]
    assert store.read_bytes() == b"as it was"
    assert operator.stores == {}
    assert operator.failures == []


def test_a_live_file_that_was_touched_before_anybody_decided_is_a_finding(centre: Centre) -> None:
    live = centre.output / "web01.log"
    live.write_bytes(b"cut")
    receiver = refuse(centre)
    operator = Operator(cast("World", centre))
    operator.stores[0] = HarmedStore(centre.output / "p0.db", b"as it was", {live: 10})
    operator.on_duty.set()

    with operator:
        wait_until("it goes on", lambda: receiver.refused is None, 30)

    assert operator.failures == ["web01.log had 10 bytes when p0.db was harmed, and has 3"]


def test_what_another_receiver_has_said_of_a_store_before_it_was_brought_back_is_done(
    centre: Centre,
) -> None:
    receiver = refuse(centre)
    told: list[str] = []
    operator = Operator(cast("World", centre), lambda _, **fields: told.append(fields["did"]))
    operator.stores[0] = HarmedStore(centre.output / "p0.db", b"as it was", {})
    operator.on_duty.set()

    with operator:
        wait_until("it goes on", lambda: receiver.refused is None, 30)
        refuse(centre)
        wait_until("it goes on again", lambda: receiver.refused is None, 30)

    assert told == ["brought back p0.db", "started again"]
