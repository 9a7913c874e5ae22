"""What logbroker does when the stream runs out of space, as settings."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from broker.app.configuration import ProgramSettings

__all__ = ["RoomSettings"]

Percent = Annotated[int, Field(ge=1, le=99)]


class RoomSettings(ProgramSettings):
    """The settings of the keeper that makes room in the stream."""

    on_full: Literal["backpressure", "drop-oldest"] = Field(
        "backpressure",
        description="What gives way when only lines are left that no receiver has: hosts wait, or the oldest lines go.",
        json_schema_extra={"metavar": "backpressure|drop-oldest"},
    )
    high_water: Percent = Field(
        90,
        description="Percent of the stream's limits from which on room is made.",
        json_schema_extra={"metavar": "PERCENT"},
    )
    low_water: Percent = Field(
        80,
        description="Percent down to which lines go that all receivers have.",
        json_schema_extra={"metavar": "PERCENT"},
    )

    @model_validator(mode="after")
    def _low_below_high(self) -> "RoomSettings":
        if self.low_water >= self.high_water:
            raise ValueError(
                f"low_water ({self.low_water}) must be below high_water ({self.high_water})"
            )
        return self
