"""`make lint` finds terms of the old vocabulary where readers would meet them."""

import pytest

from tests.vocabulary import Vocabulary, check_python

VOCABULARY = Vocabulary({"text": {"quux": "again"}, "names": {"frob": "reported"}})


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        *(('"""Begins\nquux."""\n', [1]), ("at = 1  # made quux\n", [0])),
        *(('message = f"{at} quux"\n', [0]), ("def is_frob(at):\n    pass\n", [0])),
        ("class Frob:\n    def call(self, frob_at):\n        pass\n", [0, 1]),
        ('"""A renewal, quux-ish, of quuxt."""\n', []),
    ],
)
def test_a_term_is_found_in_text_and_names(source: str, lines: list[int]) -> None:
    assert sorted(line for line, _ in check_python(source, VOCABULARY)) == lines
