"""What a person asks for, and what becomes of it."""

from pathlib import Path

import pytest

from tests.chaos.order import Order, Wanted, choose, read_words
from tests.chaos.schedule import Kind
from tests.chaos.shape import Shape

FAMILIES = {"processes": ["kill-shipper", "stop-shipper"], "disks": ["full-broker"]}


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        pytest.param("all", Wanted(), id="all"),
        pytest.param("40", Wanted(most=40), id="so many of all"),
        pytest.param("disks,stop-shipper", Wanted(("full-broker", "stop-shipper")), id="names"),
        pytest.param(
            "processes, 7", Wanted(("kill-shipper", "stop-shipper"), 7), id="so many of some"
        ),
        pytest.param("disks,full-broker", Wanted(("full-broker",)), id="once, though named twice"),
    ],
)
def test_faults_are_wanted_by_name_family_and_number(words: str, wanted: Wanted) -> None:
    assert read_words(words, FAMILIES) == wanted


def test_a_misspelt_fault_is_told_with_the_one_that_is_like_it() -> None:
    with pytest.raises(ValueError, match="'kill-shiper': did you mean kill-shipper"):
        read_words("kill-shiper", FAMILIES)


def test_kinds_that_cannot_be_done_are_left_out_with_the_reason() -> None:
    kinds = [
        Kind("kill"),
        Kind("kill-worker", needs=frozenset({"spark"})),
        Kind("stop-worker", needs=frozenset({"spark"})),
        Kind("purge", destroys=True),
    ]

    chosen, left_out = choose(kinds, Wanted(), frozenset({"alone"}), destroy=False)

    assert chosen == kinds[:1]
    assert left_out == [
        "needs spark: kill-worker, stop-worker",
        "destroys, and --destroy is not given: purge",
    ]


def test_only_what_is_wanted_is_chosen() -> None:
    kinds = [Kind("kill"), Kind("purge", destroys=True)]

    chosen, left_out = choose(kinds, Wanted(("purge",)), frozenset(), destroy=True)

    assert (chosen, left_out) == (kinds[1:], [])


def test_an_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    order = Order(Shape(hosts=2), 5.0, Wanted(("kill",), 9))

    order.write(path)

    assert Order.read(path) == order
