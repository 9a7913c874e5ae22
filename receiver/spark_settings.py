"""The settings that say where and how Spark runs, the same for every command that runs on it."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from broker.client.access_settings import AccessSettings

__all__ = ["SPARK", "SparkSettings"]

SPARK = frozenset({"master", "executor_python", "spark_conf", "spark_ui"})
"""The names of the settings below, for commands that take some settings and not others."""


def _one_per_line(value: object) -> object:
    return tuple(value.splitlines()) if isinstance(value, str) else value


def _check_pairs(pairs: tuple[str, ...]) -> tuple[str, ...]:
    for pair in pairs:
        key, equals, _ = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise ValueError(f"{pair!r} is no setting of Spark; write spark.name=value")
    return pairs


class SparkSettings(AccessSettings):
    """The settings of Spark, and those of every program that connects to a broker."""

    master: str = Field(
        "local[*]",
        description=(
            "Where Spark runs: local[*], or an existing cluster: spark://host:7077, yarn, k8s://https://host:port."
        ),
        json_schema_extra={"metavar": "URL"},
    )
    executor_python: str = Field(
        "python3",
        description=(
            "On a cluster: the Python of the executors, of the minor version that this program runs on; it needs none of "
            "our packages."
        ),
        json_schema_extra={"metavar": "PATH"},
    )
    spark_conf: Annotated[
        tuple[str, ...], BeforeValidator(_one_per_line), AfterValidator(_check_pairs)
    ] = Field(
        (),
        description="A setting of Spark as spark.name=value, which wins over ours; may be given several times.",
        json_schema_extra={"metavar": "KEY=VALUE"},
    )
    spark_ui: Annotated[int, Field(ge=0, le=65535)] = Field(
        0,
        description=(
            "Port of Spark's own user interface, such as 4040: on loopback where Spark runs locally; 0 for none."
        ),
        json_schema_extra={"metavar": "PORT"},
    )

    @property
    def spark(self) -> dict[str, str]:
        """The settings of Spark that were asked for."""
        asked = dict(pair.split("=", 1) for pair in self.spark_conf)
        if not self.spark_ui:
            return asked
        return {"spark.ui.enabled": "true", "spark.ui.port": str(self.spark_ui)} | asked
