"""How a replay's tasks share the hosts of a partition."""

import pytest

from receiver.replay.units import cut_evenly


@pytest.mark.parametrize(("partitions", "cores"), [((0,), 1), ((0,), 4), ((0, 1, 2), 4), ((5,), 3)])
def test_every_host_is_in_one_unit_alone(partitions: tuple[int, ...], cores: int) -> None:
    units = cut_evenly(partitions, 1, 100, cores)

    assert len(units) >= cores
    for partition in partitions:
        mine = [unit for unit in units if unit.partition == partition]
        for number in range(50):
            assert sum(unit.has(f"web{number:02}") for unit in mine) == 1
