"""The prose of the pages is read at once: short sentences that begin with their subject."""

import re
from collections.abc import Iterator
from statistics import mean

import pytest

from tests.docs.test_pages import ALL, TEXTS

_LONGEST, _LONGEST_MEAN = 30, 15.5  # words
_LONGEST_CELL = 120  # characters, as a reader sees them
_NOT_PROSE = re.compile(
    r"<!-- (?:made|options).*?<!-- end of|^```.*?^```", re.DOTALL | re.MULTILINE
)
_MARKS = re.compile(r"(?<![\w*])\*(?=\w)|(?<=\w)\*(?![\w*])|!?\[([^]]*)\]\([^)]*\)|\*\*|<[^>]+>")
_CODE = re.compile(r"`[^`]*`")
_END = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[A-Z`(])|;\s|:\s")
_HARD_BEGINNINGS = re.compile(r"(?:Of|(?:Who|Which|What)ever|What (?!to))\b.*[.]$")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of paragraphs, items of lists and cells of tables.

    A colon or a semicolon ends a sentence, too: what follows is read as one of its own.
    """
    for block in re.split(r"\n(?=\s*(?:[*-]|\d+\.|#+|\|) ?)|\n\n", _NOT_PROSE.sub("\n\n", text)):
        cells = block.split("|") if block.lstrip().startswith("|") else [block]
        for cell in cells:
            words = _CODE.sub(
                "Code", _MARKS.sub(lambda found: found[1] or "", " ".join(cell.split()))
            )
            plain = re.sub(r"^(?:[*-]|\d+\.|#+) ", "", words.strip())
            yield from filter(None, _END.split(plain))


@ALL
def test_sentences_are_short(page: str) -> None:
    counts = {one: len(one.split()) for one in sentences(TEXTS[page])}

    assert [one for one, count in counts.items() if count > _LONGEST] == []
    whole = [count for one, count in counts.items() if one.endswith((".", "!", "?")) and count > 3]
    assert not whole or mean(whole) <= _LONGEST_MEAN


@ALL
def test_sentences_begin_with_their_subject(page: str) -> None:
    assert [one for one in sentences(TEXTS[page]) if _HARD_BEGINNINGS.match(one)] == []


@ALL
def test_cells_of_tables_are_short(page: str) -> None:
    rows = re.findall(r"^\|.*\|$", _NOT_PROSE.sub("", TEXTS[page]), re.MULTILINE)
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    seen = [_MARKS.sub(lambda found: found[1] or "", cell) for cell in cells]

    assert [cell for cell in seen if len(cell) > _LONGEST_CELL] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Of one host the files go at once.", True),
        ("- What was not shipped is lost.", True),
        ("Whatever comes waits.", True),
        ("What did a host say around 14:03?", False),
        ("The lines are lost. See there.", False),
    ],
)
def test_a_hard_beginning_is_found(text: str, found: bool) -> None:
    assert any(_HARD_BEGINNINGS.match(one) for one in sentences(text)) is found
