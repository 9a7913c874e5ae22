"""What a running receiver answers to `logreceiver status` and to a standby, as JSON."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, FiniteFloat, StringConstraints, TypeAdapter


class Blockade(BaseModel):
    """Why a partition is blocked, and since when (RFC 3339)."""

    cause: str
    detail: str
    since: str


class PartitionReport(BaseModel):
    """What only the owner of a partition knows; None for what nobody has answered.

    Gaps and quarantined messages are those of the last day, or since the receiver started;
    `gaps_of` counts gaps by host. The partition is `starting` until its first Spark task has
    reported. `standby` names the receivers that wait to take the partition over.
    """

    lines_per_second: FiniteFloat | None = None
    blocked: Blockade | None = None
    gaps: int | None = None
    gaps_of: Mapping[str, int] | None = None
    quarantined: int | None = None
    starting: bool = False
    standby: Sequence[str] = ()


class StandbyQuestion(BaseModel):
    """What a standby asks the owner of a partition: are you running? It is called `standby`.

    Any client may send one.
    """

    partition: int
    standby: Annotated[str, StringConstraints(min_length=1, max_length=300)]


REPORTS = TypeAdapter(dict[int, PartitionReport])
"""A receiver's answer: reports by partition."""
