"""Each recipe of docs/recipes.md is run as it is written, and shows what the page says.

Programs, broker, journal, object store and Spark are real. Stand-ins are the containers' runtimes,
a cluster of Kubernetes, systemd and a second machine. Paths of the page are below a folder of the
test, `broker1:4222` is the test's broker, and a day lasts a second.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.manifests import FOLDER, find_renderer, render
from tests.deploy.pods import pods_of
from tests.docs.commands import find_missing
from tests.docs.option_tables import DOCS
from tests.support.journals import JournalWriter, have_journal
from tests.support.ports import free_port
from tests.support.processes import Processes, installed, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.journey, pytest.mark.nats]

PAGE = (DOCS / "recipes.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", PAGE, re.MULTILINE))
INTRODUCTION = PAGE.partition("\n## ")[0]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
APP_LINES = "14:03:07 INFO order 17 paid\n14:03:08 ERROR order 18: card was refused\n"
NGINX = """203.0.113.9 - - [29/Nov/2026:14:03:07 +0000] "GET / HTTP/1.1" 200 612
10.0.0.1 - - [29/Nov/2026:14:03:08 +0000] "GET /healthz HTTP/1.1" 200 2
203.0.113.7 - - [29/Nov/2026:14:03:09 +0000] "POST /login HTTP/1.1" 302 0
"""
PRELUDE = """set -e
runs() { (( $(jobs -p | wc -l) >= $1 )); }
until_holds() { for _ in $(seq 900); do if "$@"; then return; fi; sleep 0.2; done; false; }
"""
END = """
kill $(jobs -p) $(cat pids 2>/dev/null) 2>/dev/null || :
wait
"""


class Kitchen:
    """The machine of a recipe: a folder that is its `/`, and stand-ins of programs."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.root, self.processes = folder / "root", processes
        self.suite = Suite(folder, processes)
        self.environment: dict[str, str] = {}
        self.changes: dict[str, str] = {}  # of texts of the page
        self.waits = ""  # commands that come after each program that is left running
        self.work, self.bin = self.root / "work", self.root / "bin"
        for path in (self.work, self.bin, self.root / "srv", self.root / "var/lib/node_exporter"):
            path.mkdir(parents=True)

    def write(self, path: str, text: str) -> Path:
        """Write a file of the recipe's machine."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        return file

    def stand_in(self, program: str, script: str) -> None:
        """Have a shell script replace a program."""
        self.write(f"bin/{program}", f"#!/bin/bash\n{script}\n").chmod(0o755)

    def ship(self, lines: str = APP_LINES) -> None:
        """Ship some lines of host web01."""
        file = self.write("var/log/app/app.log", lines)
        shipper = self.suite.start_shipper("web01", [file], "--once")
        assert shipper.wait(60) == 0, shipper.last_output()

    def map(self, text: str) -> str:
        """Return a text of the page with the addresses and paths of the test."""
        text = re.sub(r"(?<![\w.*…}-])/(var|srv|etc|run)/", rf"{self.root}/\1/", text)
        text = re.sub(r"\w+://broker1:4222", self.suite.url, text)
        for name, instead in self.changes.items():
            text = text.replace(name, instead)
        return text

    def run(self, title: str, seconds: float = 240) -> str:
        """Run a recipe; return what it has written."""
        script = [PRELUDE]
        for language, text in BLOCK.findall(SECTIONS[title]):
            body = self.map(text)
            if file := re.match(r"# (/\S+)\n", body):
                Path(file[1]).parent.mkdir(parents=True, exist_ok=True)
                Path(file[1]).write_text(body, "utf-8")
            elif language == "python":
                self.write("work/recipe.py", body)
                script.append(f"{sys.executable} recipe.py\n")
            elif language == "sh":
                script.append(re.sub(r"(?<= )&$", rf"&\n{self.waits}", body, flags=re.MULTILINE))
        recipe = self.write("work/recipe.sh", "".join([*script, END]))
        path = f"{self.bin}:{Path(installed('logshipper')).parent}:{os.environ['PATH']}"
        (setting,) = re.findall(r"^```sh\n(.*?)^```", INTRODUCTION, re.DOTALL | re.MULTILINE)
        command = ["bash", "-c", f"{self.map(setting)}\ncd {self.work} && . {recipe}"]
        environment = {"PATH": path, **self.environment}
        session = self.processes.start("recipe", command, environment)
        code = session.wait(seconds)
        assert code == 0, session.last_output()
        return session.log.read_text("utf-8")


def shows(title: str, kitchen: Kitchen, written: str) -> None:
    shown = [text for language, text in BLOCK.findall(SECTIONS[title]) if language == "text"]
    assert find_missing(kitchen.map("".join(shown)), written) == [], written


@pytest.fixture
def kitchen(tmp_path: Path, processes: Processes) -> Kitchen:
    made = Kitchen(tmp_path, processes)
    made.suite.start_broker()
    return made


def prepare_nginx(kitchen: Kitchen) -> None:
    kitchen.write("var/log/nginx/access.log", NGINX)


def prepare_journal(kitchen: Kitchen) -> None:
    if not have_journal():
        pytest.skip("journalctl (systemd) and systemd-journal-remote are not installed")
    folder = kitchen.root / "journal"
    folder.mkdir()
    writer = JournalWriter(folder)
    for unit, message in (("cron", "left out"), ("nginx", "signal process started")):
        fields = {"MESSAGE": message, "PRIORITY": "6", "_SYSTEMD_UNIT": f"{unit}.service"}
        writer.write(1, **fields, SYSLOG_IDENTIFIER=unit)
    kitchen.environment["LOGSHIPPER_JOURNAL_DIRECTORY"] = str(folder)


def prepare_docker(kitchen: Kitchen) -> None:
    entry = {"log": "order 17 paid\n", "stream": "stdout", "time": "2026-11-29T14:03:07.120000000Z"}
    text = json.dumps(entry, separators=(",", ":")) + "\n"
    name = "4f0c1e" * 10 + "4f0c"
    kitchen.write(f"var/lib/docker/containers/{name}/{name}-json.log", text)


def prepare_kubernetes(kitchen: Kitchen) -> None:
    if not find_renderer():
        pytest.skip("neither kubectl nor kustomize is installed")
    name = "containers/web-6d4f_shop_app-90ab.log"
    kitchen.write(f"var/log/{name}", "2026-11-29T14:03:07.12Z stdout F order 17 paid\n")
    pods = {pod.program: pod.variables for pod in pods_of(render(FOLDER / "overlays/single"))}
    shipper, receiver = pods["logshipper"], pods["logreceiver"]
    kitchen.stand_in(
        "kubectl",
        f"""if [ "$1" = apply ]; then
          logshipper --file '{kitchen.map(shipper["LOGSHIPPER_FILE"])}' --once \\
            --host '{shipper["LOGSHIPPER_HOST"]}'
          logreceiver --partition all --output '{kitchen.root}/var/log/logship' --once \\
            --path-template '{receiver["LOGRECEIVER_PATH_TEMPLATE"]}'
        elif [ "$3" = exec ]; then "${{@:6}}"; fi""",
    )


def prepare_applications(kitchen: Kitchen) -> None:
    for name in ("cart", "shop"):
        kitchen.write(f"srv/apps/{name}/app.log", f"{name}\n")
    kitchen.changes = {"web01/srv/": f"web01{kitchen.root}/srv/"}


def prepare_lines(kitchen: Kitchen) -> None:
    kitchen.ship()


def prepare_search(kitchen: Kitchen) -> None:
    kitchen.ship("somewhere else\n" + APP_LINES)


def prepare_days(kitchen: Kitchen) -> None:
    """Write an order each time that is waited: a day is over each second."""
    kitchen.changes = {" 1d ": " 1s ", " 30d ": " 5s "}
    file = kitchen.write("var/log/app/app.log", "order 17 paid\n")
    kitchen.waits = f"""has_closed() {{
      echo 'order 17 paid' >> {file}
      [ -e {kitchen.root}/srv/logs/web01.log ] && ls {kitchen.root}/srv/logs | grep -q '[.]gz$' &&
        ! [ -e {kitchen.root}/srv/logs/web01.log.000001.gz ]; }}
    ! runs 2 || until_holds has_closed\n"""


def prepare_store(kitchen: Kitchen) -> None:
    import boto3

    kitchen.ship()
    port = free_port()
    server = kitchen.processes.start("s3", [installed("moto_server"), "-p", str(port)])
    wait_until("S3 is ready", lambda: "Running on" in server.read_log(), 60, [server])
    url = f"http://127.0.0.1:{port}"
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
    client.create_bucket(Bucket="bucket")
    client.close()
    kitchen.environment |= {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}


def prepare_console(kitchen: Kitchen) -> None:
    unit = (DOCS.parent / "systemd/logbroker-console.service").read_text("utf-8")
    (command,) = re.findall(r"^ExecStart=/opt/logship/bin/(.*)$", unit, re.MULTILINE)
    names = dict(re.findall(r"^LoadCredential=([\w.-]+):?(.*)$", unit, re.MULTILINE))
    secrets, store = kitchen.root / "run/credentials/logbroker-console.service", "etc/credstore"
    (kitchen.root / store).mkdir(parents=True)
    kitchen.suite.credential("admin", "first")
    kitchen.changes = {"127.0.0.1:8080": f"127.0.0.1:{(port := free_port())}"}
    kitchen.changes["[console]"] = f'[console]\nlisten = "127.0.0.1:{port}"'
    (kitchen.root / "var/lib/logbroker").symlink_to(kitchen.suite.folder / "store")
    copies = "\n".join(
        f"install -m 400 {kitchen.root}/{store}/{source or name} {secrets}/{name}"
        for name, source in names.items()
    )
    kitchen.stand_in(
        "systemctl",
        f"""mkdir -p {secrets}; {copies}
        export LOGBROKER_CONFIG={kitchen.root}/etc/logship/logbroker-console.toml
        CREDENTIALS_DIRECTORY={secrets} timeout 200 {command} > console.log 2>&1 & echo $! >> pids
        for _ in $(seq 300); do grep -q 'open http' console.log && exit; sleep 0.2; done
        cat console.log; exit 1""",
    )


def prepare_move(kitchen: Kitchen) -> None:
    kitchen.ship()
    new = kitchen.root / "new"
    kitchen.stand_in(
        "systemctl",
        """case $1 in
        enable) timeout 200 logreceiver --partition all --output "$OUTPUT" > received.log 2>&1 &
          echo $! >> pids
          for _ in $(seq 900); do [ -s "$OUTPUT/web01.log" ] && exit; sleep 0.2; done; exit 1 ;;
        disable) kill $(cat pids)
          while kill -0 $(cat pids) 2>/dev/null; do sleep 0.2; done; rm pids ;;
        esac""",
    )
    (new / "srv").mkdir(parents=True)
    kitchen.stand_in("rsync", f'cp -a "$2" "{new}/srv"')
    kitchen.stand_in(
        "ssh",
        f'''export OUTPUT={new}/srv/logs; shift; set -- "${{@#/opt/logship/bin/}}"
        exec env "${{@//"{kitchen.root}/srv"/"{new}/srv"}}"''',
    )
    kitchen.environment["OUTPUT"] = str(kitchen.root / "srv/logs")
    kitchen.write("etc/logship/logreceiver.toml", f'server = "{kitchen.suite.url}"\n')
    start = kitchen.processes.start(
        "first",
        ["bash", "-c", f"cd {kitchen.work} && {kitchen.bin}/systemctl enable"],
        kitchen.environment
        | {
            "LOGRECEIVER_SERVER": kitchen.suite.url,
            "PATH": f"{Path(installed('logreceiver')).parent}:{os.environ['PATH']}",
        },
    )
    assert start.wait(120) == 0, start.last_output()


Prepare = Callable[[Kitchen], None]
SLOW = (pytest.mark.spark, pytest.mark.long)


@pytest.mark.parametrize(
    ("title", "prepare"),
    [
        ("nginx", prepare_nginx),
        ("The systemd journal", prepare_journal),
        pytest.param("Docker", prepare_docker, marks=SLOW),
        pytest.param("Kubernetes", prepare_kubernetes, marks=SLOW),
        pytest.param("Ten applications, ten files", prepare_applications, marks=SLOW),
        ("What did a host say?", prepare_search),
        pytest.param("Keep 30 days", prepare_days, marks=SLOW),
        pytest.param("Tables on S3", prepare_store, marks=SLOW),
        ("Alert on ERROR: Prometheus", prepare_lines),
        pytest.param("Alert on ERROR: Spark", prepare_lines, marks=SLOW),
        ("The console as a service", prepare_console),
        pytest.param("Move a receiver", prepare_move, marks=SLOW),
    ],
)
def test_a_recipe_shows_what_the_page_says(kitchen: Kitchen, title: str, prepare: Prepare) -> None:
    prepare(kitchen)

    shows(title, kitchen, kitchen.run(title))


@pytest.mark.spark
@pytest.mark.long
def test_two_machines_by_hand(tmp_path: Path, processes: Processes) -> None:
    title, kitchen = "Two machines by hand", Kitchen(tmp_path, processes)
    address = kitchen.suite.url.removeprefix("nats://")
    kitchen.changes = {"0.0.0.0:4222": address, "--name broker1": "--name 127.0.0.1"}
    kitchen.changes["tls://broker1:4222"] = f"tls://{address}"
    kitchen.environment["LOGBROKER_HTTP"] = "off"
    kitchen.write("var/log/app/app.log", APP_LINES)
    (kitchen.root / "var/lib/logbroker").mkdir(parents=True)
    kitchen.stand_in("scp", "cp $1 ..")
    received = kitchen.root / "srv/logs/web01.log"
    credential = (
        f"--config {kitchen.work}/host-web01.toml --file {kitchen.root}/var/log/app/app.log"
    )
    kitchen.waits = f"""until_holds logshipper check {credential} > /dev/null
    ! runs 3 || until_holds test -s {received}\n"""

    shows(title, kitchen, kitchen.run(title))

    assert received.read_text("utf-8") == APP_LINES


def test_every_recipe_is_tested() -> None:
    (mark,) = test_a_recipe_shows_what_the_page_says.pytestmark  # type: ignore[attr-defined]
    titles = [getattr(one, "values", one)[0] for one in mark.args[1]]

    assert [*titles, "Two machines by hand"] == list(SECTIONS)
