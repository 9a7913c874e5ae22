"""Rules and dashboard select metrics that the programs really expose, as a scrape shows."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from nats_logship.client.access import Access
from nats_logship.wire.streams import OFFSETS_BUCKET
from nats_logship.wire.table_progress import TableProgress, table_key
from tests.docs.commands import untrue_commands
from tests.pages import page
from tests.support.commands import run_command
from tests.support.processes import Process, Processes, TookTooLong, wait_until
from tests.support.suite import Suite

pytestmark = [pytest.mark.nats, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
FILES = ROOT / "ansible/files"
PAGES = [path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load((FILES / "logship.rules.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
}
DASHBOARD = json.loads((FILES / "logship.dashboard.json").read_text("utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$host": ".*"}


class Sample(NamedTuple):
    """A series that somebody exposes."""

    name: str
    labels: dict[str, str]
    value: float = 0.0


JOBS = ("logbroker", "logshipper", "logreceiver", "node")
NODE = {"job": "node", "instance": "a:1", "mountpoint": "/srv/logs"}
# what others expose: Prometheus itself, and node_exporter; with labels that they have had for years
THEIRS = (
    *(Sample("up", {"job": job, "instance": "a:1"}) for job in JOBS),
    Sample("ALERTS", {"alertname": "LogshipNoSpace", "alertstate": "firing"}),
    Sample("node_filesystem_size_bytes", NODE),
    Sample("node_filesystem_avail_bytes", NODE),
)
COME = ("logshipper_lines_total", "logreceiver_lines_total")
WHILE_BEHIND = {"logshipper_file_behind_bytes"}  # a file of which something is not shipped


def parts(expression: str) -> list[promql.Expr]:
    """Return all parts of an expression; raises ValueError if it is no PromQL."""
    found: list[promql.Expr] = []
    promql.walk(promql.parse(expression), found.append)
    return found


def selectors(expression: str) -> list[promql.VectorSelector]:
    return [one for one in parts(expression) if isinstance(one, promql.VectorSelector)]


def matches(sample: Sample, selector: promql.VectorSelector) -> bool:
    for one in selector.matchers.matchers:
        operator = str(one.op).removeprefix("MatchOp.")
        wanted = one.value if operator in ("Re", "NotRe") else re.escape(one.value)
        is_wanted = re.fullmatch(wanted, sample.labels.get(one.name, "")) is not None
        if is_wanted == operator.startswith("Not"):
            return False
    return sample.name == selector.name


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sample, ...]:
    """Return what real programs expose, between which lines have flowed."""
    folder = tmp_path_factory.mktemp("monitored")
    with Processes(folder) as processes:
        return watched(processes, folder)


def watched(processes: Processes, folder: Path) -> tuple[Sample, ...]:
    suite, log = Suite(folder, processes), folder / "a"
    run_command("logbroker", "tls", "init", "--store-dir", folder / "store")
    suite.access = Access(tls_ca=folder / "store/tls/authority.pem")
    log.write_bytes(b"a line\n" * 1000)
    options = ("--tls-ca", str(suite.access.tls_ca), "--listen", "127.0.0.1:0")
    programs = {
        # sites that are not there are exposed, too
        "logbroker": suite.start_broker(
            *("--metrics", "127.0.0.1:0", "--site", "centre", "--source", "branch"),
            *("--site-remote", "nats-leaf://127.0.0.1:1"),
        ),
        "logshipper": suite.start_shipper("web01", [log], *options),
        "logreceiver": suite.start_receiver([0, 1], *options),
    }

    table = TableProgress("/srv/logs", "there:1").encode()  # nobody writes it
    suite.publish(f"$KV.{OFFSETS_BUCKET}.{table_key('7')}", table)

    def scrape() -> tuple[Sample, ...]:
        return tuple(one for job, program in programs.items() for one in samples(job, program))

    def have_come() -> bool:
        return sum(one.value for one in scrape() if one.name in COME) == 2000

    def listen_all() -> bool:
        return all("listening on" in one.read_log() for one in programs.values())

    watch = [*programs.values()]
    wait_until("all listen", listen_all, 150, watch)
    wait_until("lines have come", have_come, 150, watch)
    last: tuple[Sample, ...] = ()

    def are_exposed() -> bool:
        nonlocal last
        last = scrape()
        return {one.name for one in (*last, *THEIRS)} >= NAMED

    with suppress(TookTooLong):  # what is missing is named by the test
        wait_until("all that is named is exposed", are_exposed, 90, watch, every=0.5)
    return last


def samples(job: str, program: Process) -> Iterator[Sample]:
    """Yield what a program exposes, as Prometheus keeps it."""
    for family in text_string_to_metric_families(page(program, "/metrics")[1]):
        for one in family.samples:
            yield Sample(one.name, {**one.labels, "job": job, "instance": "a:1"}, one.value)


def named(expression: str) -> str:
    """Return an expression of the dashboard with what Grafana puts in for its variables."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


EXPRESSIONS = {name: rule["expr"] for name, rule in RULES.items()} | {
    f"{panel['title']}-{target['refId']}": named(target["expr"]) for panel, target in TARGETS
}
NAMED = {one.name for text in EXPRESSIONS.values() for one in selectors(text)} - WHILE_BEHIND


def test_every_metric_label_and_value_that_is_named_is_exposed(scraped: tuple[Sample, ...]) -> None:
    exposed = (*scraped, *THEIRS)

    for name, expression in EXPRESSIONS.items():
        labels: set[str] = set()
        for selector in selectors(expression):
            if selector.name in WHILE_BEHIND:
                break
            found = [one for one in exposed if matches(one, selector)]
            assert found, (name, selector.prettify())
            labels.update(*(one.labels for one in found))
        else:
            assert grouped_by(expression) <= labels, name


def grouped_by(expression: str) -> set[str]:
    found: set[str] = set()
    for part in parts(expression):
        match part:
            case promql.AggregateExpr(modifier=modifier) if modifier:
                found.update(modifier.labels)
            case promql.BinaryExpr(modifier=modifier) if modifier and modifier.matching:
                found.update(modifier.matching.labels)
    return found


def test_rules_say_how_bad_it_is_and_what_to_do() -> None:
    for name, rule in RULES.items():
        assert name.startswith("Logship"), name
        assert rule["labels"] in ({"severity": "warning"}, {"severity": "critical"}), name
        assert set(rule["annotations"]) == {"summary", "description"}, name


def test_rules_name_commands_and_chapters_that_exist() -> None:
    headings = {name for page in PAGES for name in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    told = " ".join(rule["annotations"]["description"] for rule in RULES.values())

    assert not untrue_commands(told)
    assert set(re.findall(r'[Cc]hapter "([^"]+)"', told)) <= headings
