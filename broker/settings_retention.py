"""When logbroker purges what receivers have, as settings."""

from typing import Annotated

from pydantic import Field, model_validator

from broker.app.configuration import ProgramSettings

__all__ = ["RetentionSettings"]

Percent = Annotated[int, Field(ge=1, le=99)]


class RetentionSettings(ProgramSettings):
    """The marks between which the retention worker purges."""

    high_water: Percent = Field(
        90,
        description="Percent of a stream's limits from which on messages are purged that every receiver has committed.",
        json_schema_extra={"file_only": True, "metavar": "PERCENT"},
    )
    low_water: Percent = Field(
        80,
        description="Percent down to which they are purged, the oldest first.",
        json_schema_extra={"file_only": True, "metavar": "PERCENT"},
    )

    @model_validator(mode="after")
    def _low_below_high(self) -> "RetentionSettings":
        if self.low_water >= self.high_water:
            raise ValueError(
                f"low_water ({self.low_water}) must be below high_water ({self.high_water})"
            )
        return self
