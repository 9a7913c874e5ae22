"""What a plan is made of. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["Action", "Change", "Kind", "Loss", "Plan", "Step"]


class Kind(Enum):
    """What a step is about."""

    STREAM = "stream"
    CONSUMER = "consumer"
    ENTRY = "entry"


class Action(Enum):
    """What a step does."""

    CREATE = "create"
    UPDATE = "update"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do; `config` is whole, as the server takes it, and empty for a removal.

    `stream` is the one that a consumer belongs to.
    """

    action: Action
    kind: Kind
    name: str
    config: Mapping[str, Any]
    changes: tuple[Change, ...] = ()
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Loss:
    """What some fields of a step would delete, for a person."""

    step: Step
    fields: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order to take them; with any refusal, none may be taken."""

    steps: tuple[Step, ...]
    refusals: tuple[str, ...] = ()
