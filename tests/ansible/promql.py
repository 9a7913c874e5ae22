"""The part of PromQL that the alerting rules use, evaluated over series that a test makes up.

Values are read where they are asked for, so that nothing is ever stale, and `increase` is what was counted, not
extrapolated to the ends of its range as Prometheus does; no rule hangs on either.
"""

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import promql_parser as promql

__all__ = ["Sample", "World", "evaluate", "selectors"]

_STEP = 60.0  # seconds between two looks at a range
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_COMPARISON: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "==": operator.eq,
}
_MATCH: dict[str, Callable[[str, str], bool]] = {
    "MatchOp.Equal": lambda value, wanted: value == wanted,
    "MatchOp.NotEqual": lambda value, wanted: value != wanted,
    "MatchOp.Re": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "MatchOp.NotRe": lambda value, wanted: re.fullmatch(wanted, value) is None,
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A number of a series at one time."""

    name: str
    labels: frozenset[tuple[str, str]]
    value: float


Key = Callable[[Sample], frozenset[tuple[str, str]]]
World = Callable[[float], Iterable[Sample]]
"""What there is at a time, in seconds since the epoch."""


def selectors(expression: str) -> list[promql.VectorSelector]:
    """Return all selectors of an expression; raises ValueError where it is no PromQL or its types do not fit."""
    found: list[promql.VectorSelector] = []

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.VectorSelector):
            found.append(node)

    promql.walk(promql.parse(expression), visit)
    return found


def matches(sample: Sample, selector: promql.VectorSelector) -> bool:
    """Whether a selector takes a sample."""
    labels = dict(sample.labels)
    return sample.name == selector.name and all(
        _MATCH[str(one.op)](labels.get(one.name, ""), one.value)
        for one in selector.matchers.matchers
    )


def evaluate(expression: str, world: World, now: float) -> list[Sample]:
    """Return what an expression for vectors selects at a time; raises NotImplementedError for what no rule uses."""
    found = _evaluated(promql.parse(expression), world, now)
    assert isinstance(found, list), f"{expression} is a number"
    return found


def _evaluated(node: promql.Expr, world: World, now: float) -> list[Sample] | float:
    match node:
        case promql.NumberLiteral():
            return float(node.val)
        case promql.ParenExpr():
            return _evaluated(node.expr, world, now)
        case promql.VectorSelector():
            then = now - (node.offset.total_seconds() if node.offset else 0.0)
            return [one for one in world(then) if matches(one, node)]
        case promql.Call():
            return _called(node, world, now)
        case promql.BinaryExpr():
            left, right = (_evaluated(side, world, now) for side in (node.lhs, node.rhs))
            return _combined(str(node.op), left, right, node.modifier)
        case _:
            raise NotImplementedError(node.prettify())


def _called(call: promql.Call, world: World, now: float) -> list[Sample] | float:
    match call.func.name, call.args:
        case "time", []:
            return now
        case "absent", [inner]:
            return [] if _evaluated(inner, world, now) else [Sample("", frozenset(), 1.0)]
        case "increase", [ranged]:
            return list(_over(ranged, world, now, _increase))
        case "changes", [ranged]:
            return list(_over(ranged, world, now, _changes))
        case _:
            raise NotImplementedError(call.prettify())


def _over(
    ranged: promql.MatrixSelector,
    world: World,
    now: float,
    fold: Callable[[Sequence[float]], float],
) -> Iterator[Sample]:
    back = int(ranged.range.total_seconds() / _STEP)
    values: dict[tuple[str, frozenset[tuple[str, str]]], list[float]] = {}
    for step in range(back, -1, -1):
        for one in world(now - step * _STEP):
            if matches(one, ranged.vector_selector):
                values.setdefault((one.name, one.labels), []).append(one.value)
    for (_, labels), numbers in values.items():
        if len(numbers) > 1:  # of one alone Prometheus says nothing
            yield Sample("", labels, fold(numbers))


def _increase(values: Sequence[float]) -> float:
    # what falls was begun anew, from 0
    return sum(
        after - before if after >= before else after for before, after in itertools.pairwise(values)
    )


def _changes(values: Sequence[float]) -> float:
    return float(sum(a != b for a, b in itertools.pairwise(values)))


def _combined(
    op: str,
    left: list[Sample] | float,
    right: list[Sample] | float,
    modifier: promql.BinModifier | None,
) -> list[Sample] | float:
    match left, right:
        case float(), float():
            return _ARITHMETIC[op](left, right)
        case list(), float():
            return [new for one in left for new in _applied(op, one, one.value, right)]
        case float(), list():
            return [new for one in right for new in _applied(op, one, left, one.value)]
        case list(), list():
            return _joined(op, left, right, _key(modifier))
    raise NotImplementedError(op)


def _joined(op: str, left: list[Sample], right: list[Sample], key: Key) -> list[Sample]:
    mine, others = {key(one) for one in left}, {key(one): one for one in right}
    match op:
        case "and":
            return [one for one in left if key(one) in others]
        case "unless":
            return [one for one in left if key(one) not in others]
        case "or":
            return left + [one for one in right if key(one) not in mine]
    return [
        new
        for one in left
        if (other := others.get(key(one))) is not None
        for new in _applied(op, one, one.value, other.value)
    ]


def _applied(op: str, of: Sample, left: float, right: float) -> list[Sample]:
    if op in _COMPARISON:  # filters, and leaves the value of the vector
        return [of] if _COMPARISON[op](left, right) else []
    return [Sample("", of.labels, _ARITHMETIC[op](left, right))]


def _key(modifier: promql.BinModifier | None) -> Key:
    matching = modifier.matching if modifier is not None else None
    if matching is None:
        return lambda one: one.labels
    names = set(matching.labels)
    includes = str(matching.type) == "LabelModifierType.Include"
    return lambda one: frozenset((k, v) for k, v in one.labels if (k in names) is includes)
