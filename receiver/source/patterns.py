"""Patterns of subjects, as NATS filters by them: `*` stands for one token, a last `>` for one or more. Decides only."""

import re

__all__ = ["is_pattern", "meet", "named", "partition_in"]

_OF_PARTITION = re.compile(r"logs\.p(0|[1-9][0-9]{0,5})\.>")


def is_pattern(text: str) -> bool:
    """Whether a server would take `text` as a filter."""
    tokens = text.split(".")
    return (
        all(tokens)
        and not any(sign.isspace() or not sign.isprintable() for sign in text)
        and ">" not in tokens[:-1]
    )


def meet(one: str, other: str) -> str | None:
    """Return the pattern of exactly the subjects that both take in; None when there are none."""
    ours, theirs, met = one.split("."), other.split("."), list[str]()
    while ours and theirs:
        if ours == [">"] or theirs == [">"]:
            return ".".join([*met, *(theirs if ours == [">"] else ours)])
        first, second = ours.pop(0), theirs.pop(0)
        if first != second and "*" not in (first, second):
            return None
        met.append(second if first == "*" else first)
    return None if ours or theirs else ".".join(met)


def partition_in(pattern: str) -> int | None:
    """Return the partition whose every host a pattern takes in, None for any other pattern."""
    found = _OF_PARTITION.fullmatch(pattern)
    return int(found[1]) if found else None


def named(pattern: str) -> str:
    """Say to a person what is read: a partition, or a subject."""
    partition = partition_in(pattern)
    return f"subject {pattern}" if partition is None else f"partition {partition}"
