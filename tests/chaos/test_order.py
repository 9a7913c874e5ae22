"""What a person asks for, what is drawn from it, and what of it counts as struck."""

import errno
import os
import random
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.chaos.faults.catalogue import CATALOGUE, FAMILIES
from tests.chaos.faults.fault import CannotStrike, End
from tests.chaos.order import Order, Shape, Wanted, choose, read_words
from tests.chaos.run import strike
from tests.chaos.runlog import Progress, RunLog
from tests.chaos.schedule import Act, Fault, FaultKind, Stroke, draw

if TYPE_CHECKING:
    from tests.chaos.world import World

NAMES = {"processes": ["kill-shipper", "stop-shipper"], "disks": ["full-broker"]}


def nothing(_: "World", __: random.Random) -> None:
    """Do nothing."""


DRAWN = [
    FaultKind("kill", nothing, weight=3.0),
    FaultKind("stop", nothing, lasts=(0.2, 9.0)),
    FaultKind("full", nothing, lasts=(1.0, 4.0)),
]


def test_every_fault_has_a_name_of_its_own_and_says_what_it_does() -> None:
    names = Counter([*FAMILIES, *(kind.name for kinds in FAMILIES.values() for kind in kinds)])

    assert [name for name, count in names.items() if count > 1] == []
    assert [name for name, kind in CATALOGUE.items() if not kind.words] == []


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("all", Wanted()),
        ("40", Wanted(most=40)),
        ("disks,stop-shipper,full-broker", Wanted(("full-broker", "stop-shipper"))),
        ("processes, 7", Wanted(("kill-shipper", "stop-shipper"), 7)),
    ],
)
def test_faults_are_wanted_by_name_family_and_number(words: str, wanted: Wanted) -> None:
    assert read_words(words, NAMES) == wanted


def test_a_misspelt_fault_is_told_with_the_one_that_is_like_it() -> None:
    with pytest.raises(ValueError, match="'kill-shiper': did you mean kill-shipper"):
        read_words("kill-shiper", NAMES)


def test_kinds_that_cannot_be_done_are_left_out_with_the_reason() -> None:
    kinds = [
        FaultKind("kill", nothing),
        FaultKind("kill-worker", nothing, needs=frozenset({"spark"})),
        FaultKind("stop-worker", nothing, needs=frozenset({"spark"})),
        FaultKind("purge", nothing, destroys=True),
    ]

    chosen, left_out = choose(kinds, Wanted(), frozenset({"alone"}), destroy=False)

    assert chosen == kinds[:1]
    assert left_out == [
        "needs spark: kill-worker, stop-worker",
        "destroys, and --destroy is not given: purge",
    ]
    assert choose(kinds, Wanted(("purge",)), frozenset(), destroy=True) == (kinds[3:], [])


def test_an_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    order = Order(Shape(hosts=2), 5.0, Wanted(("kill",), 9))

    order.write(path)

    assert Order.read(path) == order


def strokes(seed: int, count: int) -> list[Stroke]:
    return list(islice(draw(seed, DRAWN), count))


def test_the_same_seed_gives_the_same_strokes_and_another_one_others() -> None:
    assert strokes(5, 50) == strokes(5, 50) != strokes(6, 50)


def test_strokes_take_all_kinds_in_turn_as_long_and_as_often_as_these_say() -> None:
    found = strokes(1, 400)

    alone = [one.faults[0].kind for one in found if len(one.faults) == 1]
    assert [set(alone[start : start + 3]) for start in (0, 3, 6)] == [{"kill", "stop", "full"}] * 3
    lasts = {(fault.kind, fault.lasts) for one in found for fault in one.faults}
    assert {seconds for kind, seconds in lasts if kind == "kill"} == {0.0}
    assert all(0.2 <= seconds <= 9.0 for kind, seconds in lasts if kind == "stop")
    overlapping = [fault.kind for one in found if len(one.faults) > 1 for fault in one.faults]
    assert overlapping.count("kill") > 2 * overlapping.count("full") > 0


def failing(number: int) -> Act:
    def act(_: "World", __: random.Random) -> None:
        raise OSError(number, os.strerror(number))

    return act


def never_met(_: "World", __: random.Random) -> End:
    def end() -> None:
        raise CannotStrike("no such call came")

    return end


def test_what_hit_nothing_has_not_struck_and_a_fault_that_fails_itself_is_told(
    tmp_path: Path,
) -> None:
    acts = {"never-met": never_met, "met": nothing, "on-a-dead-disk": failing(errno.EIO)}
    kinds = {name: FaultKind(name, act) for name, act in acts.items()}
    stroke = Stroke(tuple(Fault(name, 0.0, 0.0, 1) for name in kinds))
    nowhere, log = cast("World", None), RunLog(tmp_path / "run.jsonl")

    found = strike(nowhere, stroke, log, kinds)

    assert [one.fault.kind for one in found if one.struck] == ["met"]
    clumsy = {"clumsy": FaultKind("clumsy", failing(errno.ENOENT))}
    with pytest.raises(RuntimeError, match="failed itself"):
        strike(nowhere, Stroke((Fault("clumsy", 0.0, 0.0, 1),)), log, clumsy)


def test_a_stroke_is_one_line_with_its_faults_and_how_long_lines_took() -> None:
    faults = [{"kind": "kill-jvm", "lasts": 0.0}, {"kind": "stop-shipper", "lasts": 4.5}]
    stroke: dict[str, Any] = {"event": "stroke", "number": 12, "faults": faults}
    progress = Progress()
    events: list[dict[str, Any]] = [
        stroke,
        stroke,
        {"event": "not struck", "kind": "kill-jvm", "why": ""},
        {"event": "flows", "waited": 1.26},
        stroke,
        {"event": "finding", "words": "lines flow again: not within 90 s"},
    ]

    lines = [line for event in events if (line := progress.line_of(event))]

    what = "  12  kill-jvm + stop-shipper 4.5 s"
    assert lines == [
        f"{what}: no lines waited for",
        f"{what} (nothing to hit: kill-jvm): lines flow after 1.3 s",
        f"{what}: lines flow again: not within 90 s",
    ]
