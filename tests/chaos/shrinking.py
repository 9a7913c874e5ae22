"""Shrinks a schedule that fails to a shorter one that still does. A core: asks `fails`, and knows no world.

Delta debugging (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002), over strokes first, then over
the faults within each stroke that is left.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tests.chaos.schedule import Fault, Stroke

__all__ = ["same_failure", "shortest", "shrink"]

_COUNT = re.compile(r"(\d+) (missing|repeated|out of order|torn|altered|foreign)")
_WORD = re.compile(r"[^\W\d]{3,}")
_ENOUGH_WORDS = 3  # behind a host's name; "not within" alone says nothing
Item = TypeVar("Item")


def shortest(items: Sequence[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """Return a row of some of the items, in their order, that fails, and does not with any one of them left out.

    `fails` is never asked for the row itself, nor for an empty one, nor twice for the same.
    """
    asked: dict[tuple[int, ...], bool] = {}

    def ask(numbers: list[int]) -> bool:
        key = tuple(numbers)
        if key not in asked:
            asked[key] = fails([items[number] for number in numbers])
        return asked[key]

    left = list(range(len(items)))
    parts = 2
    while len(left) > 1:
        parts = min(parts, len(left))
        chunks = _chunks(left, parts)
        rests = [[one for one in left if one not in chunk] for chunk in chunks] if parts > 2 else []
        found = next((some for some in (*chunks, *rests) if ask(some)), None)
        if found is not None:
            parts = 2 if found in chunks else max(parts - 1, 2)
            left = found
        elif parts == len(left):
            break
        else:
            parts *= 2
    return [items[number] for number in left]


def _chunks(numbers: list[int], parts: int) -> list[list[int]]:
    edges = [len(numbers) * part // parts for part in range(parts + 1)]
    return [numbers[start:end] for start, end in itertools.pairwise(edges)]


def shrink(strokes: Sequence[Stroke], fails: Callable[[list[Stroke]], bool]) -> list[Stroke]:
    """Return the shortest schedule that delta debugging finds: neither a stroke nor a fault of it can be left out."""
    left = shortest(strokes, fails)
    for place, stroke in enumerate(left):
        fails_with = partial(_fails_with, fails, left, place)
        left[place] = replace(stroke, faults=tuple(shortest(stroke.faults, fails_with)))
    return left


def _fails_with(
    fails: Callable[[list[Stroke]], bool], strokes: list[Stroke], place: int, faults: list[Fault]
) -> bool:
    fewer = replace(strokes[place], faults=tuple(faults))
    return fails([*strokes[:place], fewer, *strokes[place + 1 :]])


def same_failure(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether two runs have findings of the same kind, whatever hosts and numbers are in them."""
    return not _kinds(one).isdisjoint(_kinds(other))


def _kinds(findings: Iterable[str]) -> set[str]:
    return {kind for finding in findings for kind in _kinds_of(finding.partition("\n")[0])}


def _kinds_of(line: str) -> set[str]:
    if counts := _COUNT.findall(line):
        return {name for count, name in counts if int(count)}
    after = " ".join(_WORD.findall(line.partition(": ")[2]))
    kinds = {" ".join(_WORD.findall(line))}
    return kinds | {after} if len(after.split()) >= _ENOUGH_WORDS else kinds
