"""The bugs of `make mutants` can be planted in the code as it is."""

from pathlib import Path

from tests.mutants import MUTANTS, ROOT


def test_each_bug_is_in_the_code_once_and_has_tests() -> None:
    texts = {mutant.path: (ROOT / mutant.path).read_text("utf-8") for mutant in MUTANTS}
    tests = [Path(ROOT, name) for mutant in MUTANTS for name in mutant.tests.split()]

    assert len(MUTANTS) >= 20
    assert [one for one in MUTANTS if texts[one.path].count(one.right) != 1] == []
    assert [path for path in tests if not path.exists()] == []
