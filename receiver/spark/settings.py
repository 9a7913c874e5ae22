"""The settings of programs that run on Spark, and the JVM that they start."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from nats_logship.app.configuration import option
from nats_logship.client.access_settings import AccessSettings
from receiver.spark.java import is_local
from receiver.spark.jvm import Jvm, run_jvm


def split_lines(value: object) -> object:
    """Return the lines of a variable as a tuple; any other value as it is."""
    return tuple(value.splitlines()) if isinstance(value, str) else value


def _check_pairs(pairs: tuple[str, ...]) -> tuple[str, ...]:
    for pair in pairs:
        key, equals, _ = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise ValueError(f"{pair!r} is no setting of Spark; write spark.name=value")
    return pairs


class SparkSettings(AccessSettings):
    """Where Spark runs, and its settings; a program adds its own."""

    master: str = option(
        "local[*]",
        "URL",
        "Where Spark runs: local[*], or an existing cluster: spark://host:7077, yarn, "
        "k8s://https://host:port.",
    )
    spark_conf: Annotated[
        tuple[str, ...], BeforeValidator(split_lines), AfterValidator(_check_pairs)
    ] = option(
        (),
        "KEY=VALUE",
        "A setting of Spark as spark.name=value, which overrides ours; may be given several times.",
    )

    @property
    def spark(self) -> dict[str, str]:
        """The settings of --spark-conf."""
        return dict(pair.split("=", 1) for pair in self.spark_conf)


@contextmanager
def jvm_for(settings: SparkSettings, starting: Jvm | None) -> Iterator[Jvm]:
    """Give the JVM that was started first, if Spark is local; else start another, and end it.

    Raises as `run_jvm`.
    """
    if starting is not None and is_local(settings.master):
        yield starting
        return
    with run_jvm(settings.master) as jvm:
        yield jvm
