"""What `logreceiver verify` can be told beyond what a receiver can: how far back, and which hosts."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import SettingsConfigDict

from broker.app.configuration import Many
from broker.client.access_settings import ACCESS
from receiver.settings import ReceiverSettings, split_partitions

__all__ = ["VERIFY_FIELDS", "VerifySettings"]

VERIFY_FIELDS = ACCESS | {
    *("since", "host", "partition", "output", "state_dir", "path_template", "time_zone"),
    *("server", "log_level", "log_format"),
}


class VerifySettings(ReceiverSettings):
    """The settings of logreceiver verify."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")

    since: str = Field(
        "earliest",
        description="Where to begin: a time, today, a time back from now such as 2h, earliest, or seq:12345.",
        json_schema_extra={"metavar": "PLACE"},
    )
    host: Many = Field(
        (),
        description="Only hosts that match; may be given several times.",
        json_schema_extra={"metavar": "GLOB"},
    )
    partition: Annotated[tuple[str, ...], BeforeValidator(split_partitions)] = Field(
        ("all",),
        description="Only these partitions; may be given several times, or as 0,3,5.",
        json_schema_extra={"metavar": "N"},
    )
