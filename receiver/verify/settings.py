"""What `logreceiver verify` can be told beyond what a receiver can: how far back, and which hosts."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from broker.client.access_settings import ACCESS
from receiver.replay.settings import StreamSettings

__all__ = ["VERIFY_FIELDS", "VerifySettings"]

VERIFY_FIELDS = ACCESS | {
    *("since", "host", "partition", "output", "state_dir", "path_template", "time_zone"),
    *("server", "log_level", "log_format"),
}


class VerifySettings(StreamSettings):
    """The settings of logreceiver verify."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")

    since: str = Field(
        "earliest",
        description="Where to begin: a time, today, a time back from now such as 2h, earliest, or seq:12345.",
        json_schema_extra={"metavar": "PLACE"},
    )
