"""The settings of `logreceiver table`: options, variables and keys of a TOML file."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field
from pydantic_settings import SettingsConfigDict

from nats_logship.app.address import OptionalListen
from nats_logship.app.configuration import option
from nats_logship.app.units import Duration
from receiver.settings import MODELS, require_whole
from receiver.spark.settings import SparkSettings, split_lines
from receiver.table.location import Location

_DAY = timedelta(days=1)
_HOUR = 3600


def check_options(pairs: tuple[str, ...]) -> tuple[str, ...]:
    """Return options of delta-rs as they were given; raises ValueError for one without a `=`."""
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair:
            raise ValueError(f"{pair!r} is no option; write name=value, as AWS_REGION=eu-west-1")
    return pairs


def _check_grace(grace: timedelta) -> timedelta:
    if grace.total_seconds() < _HOUR:
        raise ValueError("less than an hour would delete files that queries still read")
    return grace


def _check_keep(keep: timedelta) -> timedelta:
    if keep % _DAY:
        raise ValueError("must be in whole days, such as 90d; 0 keeps all")
    return keep


class TableSettings(SparkSettings):
    """The settings of `logreceiver table`."""

    model_config = SettingsConfigDict(env_prefix="LOGRECEIVER_")
    program: ClassVar[str] = "logreceiver"
    models = MODELS
    credential_kinds = ("receiver", "admin")
    sections: ClassVar[Mapping[str, Collection[str]]] = {
        "Table": (*("table", "storage_option", "since", "every", "commit_size", "once", "listen"),),
        "Maintenance": ("keep", "readers_grace", "compact"),
        "Spark": ("master", "executor_python", "spark_conf", "tasks"),
    }

    table: str = option(
        ...,
        "DIR|URL",
        "Folder of the table, or an object store: s3://bucket/logs. It gets two Delta tables, "
        "lines and gaps.",
    )
    storage_option: Annotated[
        tuple[str, ...], BeforeValidator(split_lines), AfterValidator(check_options)
    ] = option(
        (),
        "NAME=VALUE",
        "An option of delta-rs for the object store, such as AWS_REGION=eu-west-1; may be given "
        "several times. Keys are better given as variables of the environment.",
    )
    since: str = option(
        "earliest",
        "PLACE",
        "Where a new table begins: a time, today, a time ago such as 2h, or earliest. A table that "
        "exists goes on where it ends.",
    )
    every: Annotated[Duration, Field(gt=timedelta(0))] = Field(
        timedelta(seconds=60), description="How long lines gather until they are committed."
    )
    commit_size: Annotated[ByteSize, Field(ge=2**20)] = Field(
        ByteSize(256_000_000),
        description="Bytes of messages, as stored, that are committed earlier; and about the most "
        "of each stream in one commit.",
    )
    once: bool = Field(False, description="Write the lines that wait, then exit 0.")
    keep: Annotated[Duration, AfterValidator(_check_keep)] = Field(
        timedelta(0),
        description="Remove lines so many whole days older than the newest: 90d; 0 keeps all.",
    )
    readers_grace: Annotated[Duration, AfterValidator(_check_grace)] = Field(
        timedelta(hours=24),
        description="How long files that were merged or are too old stay for queries that read "
        "them; rounded up to hours.",
    )
    compact: bool = Field(True, description="Merge the files of closed hours and days.")
    executor_python: str = option(
        "python3",
        "PATH",
        "On a cluster: the Python of the executors, of the same minor version as this program's, "
        "with pyarrow, and with deltalake for an object store.",
    )
    tasks: Annotated[int, Field(ge=0)] = option(
        0,
        "N",
        "Most Spark tasks at once, each with up to 600 MiB of memory; 0 is one for each core, and "
        "4 on a cluster.",
    )
    listen: OptionalListen = option(
        None,
        "ADDR:PORT",
        "Address for /metrics (Prometheus) and /healthz, e.g. 127.0.0.1:9466; none by default.",
    )

    def require_credential(self, *kinds: str) -> None:
        """See `ProgramSettings`; a receiver's has to be of all partitions."""
        super().require_credential(*kinds)
        require_whole(self._files, "logreceiver table")

    @property
    def location(self) -> Location:
        """Where the tables are."""
        pairs = (pair.split("=", 1) for pair in self.storage_option)
        return Location(self.table, tuple((name, value) for name, value in pairs))
