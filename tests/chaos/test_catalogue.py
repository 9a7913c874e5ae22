"""The catalogue of faults, as a person reads it."""

from collections import Counter

from tests.chaos.faults.catalogue import CATALOGUE, FAMILIES


def test_no_two_faults_have_one_name_and_none_that_of_a_family() -> None:
    names = Counter(one.kind.name for kinds in FAMILIES.values() for one in kinds)

    assert [name for name, count in (names + Counter(FAMILIES.keys())).items() if count > 1] == []


def test_every_fault_says_what_it_does() -> None:
    assert [name for name, one in CATALOGUE.items() if not one.act.__doc__] == []
