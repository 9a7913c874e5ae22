"""What counts as struck: what hit nothing shows nothing."""

import errno
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.faults.fault import CannotStrike, End, FaultKind
from tests.chaos.runlog import RunLog
from tests.chaos.schedule import Fault, Kind, Stroke
from tests.chaos.striking import strike

if TYPE_CHECKING:
    from tests.chaos.world import World

NOWHERE = cast("World", None)


def never_met(_: "World", __: random.Random) -> End:
    """Wait for what does not come."""

    def end() -> None:
        raise CannotStrike("no such call came")

    return end


def met(_: "World", __: random.Random) -> None:
    """Hit."""


def test_a_fault_that_finds_at_its_end_that_nothing_came_to_hit_has_not_struck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, act in (("never-met", never_met), ("met", met)):
        monkeypatch.setitem(CATALOGUE, name, FaultKind(Kind(name), act))
    stroke = Stroke((Fault("never-met", 0.0, 0.0, 1), Fault("met", 0.0, 0.0, 1)))

    found = strike(NOWHERE, stroke, RunLog(tmp_path / "run.jsonl", lambda _: None))

    assert {one.fault.kind: one.struck for one in found} == {"never-met": False, "met": True}


def on_a_dead_disk(_: "World", __: random.Random) -> None:
    """Find a disk that another fault has taken away."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def clumsy(_: "World", __: random.Random) -> None:
    """Fail."""
    raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


def test_a_fault_whose_disk_another_one_has_taken_away_has_not_struck_and_any_other_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, act in (("on-a-dead-disk", on_a_dead_disk), ("clumsy", clumsy)):
        monkeypatch.setitem(CATALOGUE, name, FaultKind(Kind(name), act))
    log = RunLog(tmp_path / "run.jsonl", lambda _: None)

    found = strike(NOWHERE, Stroke((Fault("on-a-dead-disk", 0.0, 0.0, 1),)), log)

    assert [one.struck for one in found] == [False]
    with pytest.raises(RuntimeError, match="failed itself"):
        strike(NOWHERE, Stroke((Fault("clumsy", 0.0, 0.0, 1),)), log)
