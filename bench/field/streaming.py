"""Spark's Structured Streaming, which writes Parquet files with the data source `jetstream`."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.field.system import LOOPBACK, Guarantees, Staged
from tests.support.processes import Processes

_KEPT = Guarantees(acked=True, fsynced=False, ordered=True, survives_kill=False)


@dataclass(frozen=True, slots=True)
class Streaming:
    """The example of docs/spark.md, once for Spark's own readers; it only writes tables."""

    name: str = "structured streaming"
    guarantees: Guarantees = _KEPT
    follows: bool = False

    def missing(self) -> str:
        """Nothing is: a receiver brings Spark along."""
        return ""

    def version(self) -> str:
        """Return Spark's."""
        return version("pyspark")

    def stage(self, folder: Path, processes: Processes, address: str = LOOPBACK) -> Staged:
        """Raise TypeError: it carries no files of hosts."""
        raise TypeError(f"{self.name} carries no files")
