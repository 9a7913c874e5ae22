"""A receiver that submits to a Spark master which is there already, by nothing but its settings in the inventory."""

from pathlib import Path

from tests.receiver.cluster import launched
from tests.rollout.field import LOGS, MARKS, WHEELHOUSE, laid_out, played, received
from tests.support.oracle import Verdict, judge_host
from tests.support.processes import wait_until
from tests.support.traffic import Traffic
from tests.systemd.machine import Machine

pytestmark = MARKS
# as of somebody else's Spark, but that its user is the receiver's: it writes what the receiver owns
UNIT = """
[Service]
User=logreceiver
StateDirectory=spark
WorkingDirectory=/var/lib/spark
Environment=SPARK_HOME={home} JAVA_HOME=/srv/java SPARK_LOCAL_DIRS=/var/lib/spark SPARK_LOCAL_IP={address}
ExecStart={home}/bin/spark-class org.apache.spark.deploy.{program}
Restart=always

[Install]
WantedBy=multi-user.target
"""
FIND = """/opt/logship/bin/python3 -c '
import os, pathlib, pyspark
from receiver.spark.java import find_java
print(pathlib.Path(pyspark.__file__).parent, find_java(os.environ).executable)'
"""


def test_a_receiver_moves_to_a_spark_master_through_its_settings_and_each_line_comes_once_and_in_order(
    tmp_path: Path,
) -> None:
    with laid_out(tmp_path / "field", ["logs", "web01"]) as field:
        logs, web01 = field.machines.values()
        groups = {
            "logship_brokers": ["logs"],
            "logship_receivers": ["logs"],
            "logship_shippers": ["web01"],
        }
        variables = {
            "logship_install_wheelhouse": WHEELHOUSE,
            "logship_shipper_settings": {"file": [f"/{path}" for path in LOGS]},
        }
        field.inventory(groups, variables)
        played(field, "site.yml")

        address = field.address("logs")
        with Traffic([web01.disk / "var/log/app.log"], 100):
            wait_until("lines flow", lambda: logs.does("test -s /var/log/logship/web01.log"), 60)
            _start_spark(logs, address)
            submitting = {
                "logship_receiver_settings": {"master": f"spark://{address}:7077"},
                "logship_receiver_environment": {"SPARK_LOCAL_IP": address},
            }
            field.inventory(groups, variables | submitting)
            played(field, "site.yml", "--limit", "logs")
            assert not any(played(field, "site.yml", "--diff", "--limit", "logs").values())
            wait_until("has an executor", lambda: bool(executors(logs)), 60)

            before = executors(logs)
            logs.told("systemctl kill -s KILL spark-worker")
            wait_until("has another", lambda: bool(executors(logs) - before), 120)
        received(lambda: verdict(web01, logs))


def _start_spark(logs: Machine, address: str) -> None:
    home, java = logs.told(FIND).split()
    logs.write("/srv/java/bin/java", launched(Path(java)))
    logs.told("chmod 755 /srv/java/bin/java")
    programs = {
        "master": f"master.Master --host {address} --port 7077",
        "worker": f"worker.Worker --host {address} --cores 2 --memory 1g --work-dir /var/lib/spark spark://{address}:7077",
    }
    for name, program in programs.items():
        unit = UNIT.format(home=home, program=program, address=address)
        logs.write(f"/etc/systemd/system/spark-{name}.service", unit)
    logs.told("systemctl daemon-reload && systemctl enable --now spark-master spark-worker")


def executors(logs: Machine) -> set[str]:
    """Return the processes that run our tasks on the cluster."""
    return set(logs.run("pgrep -f [C]oarseGrainedExecutorBackend").stdout.split())


def verdict(web01: Machine, logs: Machine) -> Verdict:
    return judge_host([web01.disk / path for path in LOGS], logs.disk / "var/log/logship", "web01")
