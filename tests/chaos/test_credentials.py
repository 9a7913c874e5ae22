"""What is done to a credential store is such that no broker may go by it, and keeps nobody else from it for good."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from broker.auth.store import EMPTY, InvalidStore, parse_store
from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.faults.credentials import DAMAGES, Damage
from tests.chaos.secured import Keys

if TYPE_CHECKING:
    from tests.chaos.world import World


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_book_is_never_one_that_can_be_read(damage: Damage, seed: int) -> None:
    whole = EMPTY.as_json().encode()

    damaged = damage(whole, random.Random(seed))

    with pytest.raises((InvalidStore, UnicodeDecodeError)):
        parse_store(damaged.decode("utf-8"))


@pytest.mark.parametrize("kind", ["lock-out", "damage-credentials"])
def test_a_fault_that_cannot_read_the_book_lets_others_change_it(kind: str, tmp_path: Path) -> None:
    keys = Keys(tmp_path, (tmp_path / "no store",), ())
    broker = SimpleNamespace(
        store=keys.stores[0], program=SimpleNamespace(process=SimpleNamespace(starts=1))
    )
    world = cast("World", SimpleNamespace(keys=keys, brokers=[broker]))

    with pytest.raises(FileNotFoundError):
        CATALOGUE[kind].act(world, random.Random(1))

    with ThreadPoolExecutor(1) as others:
        assert others.submit(keys.changing.acquire, blocking=False).result()
