"""Rules and dashboard go by what the programs really expose: real ones are started, scraped, and then something is wrong."""

import json
import re
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.ansible.promql import Sample, World, evaluate, matches, selectors
from tests.docs.commands import untrue_commands
from tests.support.ports import free_port
from tests.support.processes import Process, Processes, wait_until

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
PORTS = {"logbroker": 9463, "logshipper": 9464, "logreceiver": 9465, "node": 9100}
# what others expose: Prometheus itself, and node_exporter; with labels that they have had for years
THEIRS = (
    *(Sample("up", frozenset({("job", job)}), 1.0) for job in PORTS),
    Sample("ALERTS", frozenset({("alertname", "LogshipNoSpace"), ("alertstate", "firing")}), 1.0),
    Sample("node_filesystem_size_bytes", frozenset({("mountpoint", "/srv/logs")}), 1e12),
    Sample("node_filesystem_avail_bytes", frozenset({("mountpoint", "/srv/logs")}), 5e11),
)
COME = ("logshipper_lines_total", "logreceiver_lines_total")
WHILE_BEHIND = {"logshipper_file_behind_bytes"}  # a file of which something is not shipped
BEGIN = 7200.0  # seconds: when something goes wrong
MINUTE, DAY = 60.0, 86_400.0


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sample, ...]:
    """Return what real programs expose, between which lines have flowed."""
    folder = tmp_path_factory.mktemp("monitored")
    with Processes(folder) as processes:
        return watched(processes, folder)


def watched(processes: Processes, folder: Path) -> tuple[Sample, ...]:
    def start(program: str, *options: object) -> Process:
        words = [sys.executable, "-m", program, *map(str, options)]
        return processes.start(program, words, folder=ROOT)

    listen, store, log = f"127.0.0.1:{free_port()}", folder / "store", folder / "a"
    start("broker", "tls", "init", "--store-dir", store).wait(90)
    run = ("run", "--store-dir", store, "--listen", listen, "--http", "", "--partitions", 2)
    broker = start("broker", *run, "--metrics", "127.0.0.1:0")
    log.write_bytes(b"a line\n" * 1000)
    there = ("--server", f"nats://{listen}", "--tls-ca", store / "tls/authority.pem")
    there = (*there, "--listen", "127.0.0.1:0")
    programs = {
        "logbroker": broker,
        "logshipper": start("shipper", *there, "--file", log, "--host", "web01"),
        "logreceiver": start("receiver", *there, "--partition", "all", "--output", folder / "out"),
    }

    def scrape() -> tuple[Sample, ...]:
        return tuple(one for job, program in programs.items() for one in page(job, get(program)))

    def have_come() -> bool:
        return sum(one.value for one in scrape() if one.name in COME) == 2000

    def listen_all() -> bool:
        return all("listening on" in one.said() for one in programs.values())

    watch = [*programs.values()]
    wait_until("all listen", listen_all, 150, watch)
    wait_until("lines have come", have_come, 150, watch)
    seen = "logbroker_host_messages_per_second"
    wait_until("a host is seen", lambda: any(one.name == seen for one in scrape()), 90, watch)
    return scrape()


def get(process: Process) -> str:
    found = re.search(r"listening on (http://\S+)", process.log.read_text())
    assert found
    with urllib.request.urlopen(f"{found[1]}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def page(job: str, text: str) -> Iterator[Sample]:
    """Yield what a page says, as Prometheus keeps it."""
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            yield Sample(one.name, frozenset({*one.labels.items(), *target(job)}), one.value)


def target(job: str) -> frozenset[tuple[str, str]]:
    return frozenset({("job", job), ("instance", f"{job}1:{PORTS[job]}")})


def complete(exposed: Iterable[Sample]) -> tuple[Sample, ...]:
    """Return what is exposed with that of others beside it."""
    others = [
        replace(one, labels=one.labels | target(dict(one.labels).get("job", "node")))
        for one in THEIRS
    ]
    return (*exposed, *others)


Value = float | Callable[[float, float], float | None]
"""A number, or what becomes of one: of its value while all is well, and the seconds that it has been wrong; None is nothing."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """Series that go wrong, by a selector."""

    which: str
    value: Value


def timeline(well: Iterable[Sample], *wrongs: Wrong) -> World:
    """Return what there is while all is well, and from `BEGIN` on."""
    base = complete(well)

    @cache
    def world(now: float) -> tuple[Sample, ...]:
        if now < BEGIN:
            return base
        return tuple(new for one in base if (new := disturbed(one, now, wrongs)) is not None)

    return world


def disturbed(one: Sample, now: float, wrongs: Iterable[Wrong]) -> Sample | None:
    for wrong in wrongs:
        if any(matches(one, selector) for selector in selectors(wrong.which)):
            if isinstance(wrong.value, float):
                return replace(one, value=wrong.value)
            value = wrong.value(one.value, now - BEGIN)
            return None if value is None else replace(one, value=value)
    return one


def lasts(rule: Mapping[str, Any]) -> float:
    """Return for how many seconds a rule must hold."""
    return float(promql.parse_duration(rule["for"]).total_seconds()) if "for" in rule else 0.0


def firing(world: World) -> dict[str, list[Sample]]:
    """Return the rules that fire over what went wrong at `BEGIN`, as soon as they would, and what for."""
    found = {}
    for name, rule in RULES.items():
        moments = int(lasts(rule) / MINUTE) + 1
        seen = [evaluate(rule["expr"], world, BEGIN + MINUTE * (1 + n)) for n in range(moments)]
        if all(seen):
            found[name] = seen[-1]
    return found


def gone(value: float, seconds: float) -> float | None:
    return None


def more(value: float, seconds: float) -> float:
    return value + 3.0


CASES: dict[str, tuple[Wrong, ...]] = {
    "LogshipBrokerDown": (Wrong('up{job="logbroker"}', 0.0),),
    "LogshipBrokerAway": (Wrong('logbroker_check_status{check="connection"}', 2.0),),
    "LogshipStreamBroken": (Wrong('logbroker_check_status{check="stream"}', 2.0),),
    "LogshipLinesUnread": (Wrong("logbroker_unread_messages", 1.0),),
    "LogshipStoreFills": (Wrong('logbroker_check_status{check="space"}', 1.0),),
    "LogshipNoSpace": (Wrong('logbroker_check_status{check="space"}', 2.0),),
    "LogshipReplicaMissing": (Wrong("logbroker_stream_wanted_replicas", 3.0),),
    "LogshipCertificateEnds": (
        Wrong("logbroker_certificate_end_timestamp_seconds", lambda _, late: BEGIN + 20 * DAY),
    ),
    "LogshipCertificateEndsSoon": (
        Wrong("logbroker_certificate_end_timestamp_seconds", lambda _, late: BEGIN + 6 * DAY),
    ),
    "LogshipHostsSilent": (Wrong("logbroker_silent_hosts", 1.0),),
    "LogshipHostFloods": (Wrong('logbroker_host_messages_per_second{host="web01"}', 1001.0),),
    "LogshipPartitionUnread": (Wrong('logbroker_partition_behind_seconds{partition="1"}', 3601.0),),
    "LogshipLinesExpire": (Wrong('logbroker_partition_behind_seconds{partition="1"}', 43201.0),),
    "LogshipReceiverDown": (Wrong('up{job="logreceiver"}', 0.0),),
    "LogshipReceiverWaits": (Wrong("logreceiver_waiting", 1.0),),
    "LogshipPartitionBlocked": (Wrong('logreceiver_blocked{cause="disk",partition="0"}', 1.0),),
    "LogshipPartitionTakenOver": (Wrong('logreceiver_lost{partition="0"}', 1.0),),
    "LogshipReceiverBehind": (Wrong('logreceiver_lag_seconds{partition="0"}', 601.0),),
    "LogshipLinesLost": (Wrong('logreceiver_findings_total{kind="gap"}', more),),
    "LogshipLinesDoubtful": (Wrong('logreceiver_findings_total{kind="doubt"}', more),),
    "LogshipQuarantine": (Wrong("logreceiver_quarantined_total", more),),
    "LogshipShipperDown": (Wrong('up{job="logshipper"}', 0.0),),
    "LogshipShipperWaits": (Wrong("logshipper_waiting", 1.0),),
    "LogshipShipperBehind": (Wrong("logshipper_oldest_unshipped_seconds", 601.0),),
    "LogshipShipperPaused": (Wrong("logshipper_paused", 1.0),),
    "LogshipShipperLosesLines": (Wrong('logshipper_lost_bytes_total{reason="deleted"}', more),),
    "LogshipFilesNotFollowed": (Wrong("logshipper_troubled_paths", 1.0),),
    "LogshipProgramRestarts": (
        Wrong(
            'process_start_time_seconds{job="logreceiver"}',
            lambda value, seconds: value + seconds // MINUTE,
        ),
    ),
    "LogshipDescriptorsRunOut": (Wrong('process_open_fds{job="logshipper"}', 1e9),),
    "LogshipDiskFills": (Wrong("node_filesystem_avail_bytes", 4e10),),
}
# what a case fires beside its own: the milder rule about the same
BESIDE = {
    "LogshipCertificateEndsSoon": {"LogshipCertificateEnds"},
    "LogshipLinesExpire": {"LogshipPartitionUnread"},
}
SLOW = {"LogshipProgramRestarts": 5}  # minutes until what it counts has happened


def named(expression: str) -> str:
    """Return an expression of the dashboard with what Grafana puts in for its variables."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


EXPRESSIONS = {name: rule["expr"] for name, rule in RULES.items()} | {
    f"{panel['title']}-{target['refId']}": named(target["expr"]) for panel, target in TARGETS
}


def test_every_metric_label_and_value_that_is_named_is_exposed(scraped: tuple[Sample, ...]) -> None:
    exposed = complete(scraped)

    for name, expression in EXPRESSIONS.items():
        labels: set[str] = set()
        for selector in selectors(expression):
            if selector.name in WHILE_BEHIND:
                break
            found = [one for one in exposed if matches(one, selector)]
            assert found, (name, selector.prettify())
            labels |= {key for one in found for key, _ in one.labels}
        else:
            assert grouped_by(expression) <= labels, name


def grouped_by(expression: str) -> set[str]:
    """Return the labels by which an expression groups or joins."""
    found: set[str] = set()

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            found.update(node.modifier.labels)
        if isinstance(node, promql.BinaryExpr) and node.modifier is not None:
            found.update(node.modifier.matching.labels if node.modifier.matching else ())

    promql.walk(promql.parse(expression), visit)
    return found


def test_while_all_is_well_nobody_is_woken(scraped: tuple[Sample, ...]) -> None:
    assert firing(timeline(scraped)) == {}


def test_every_rule_fires_when_it_should_and_names_what_it_is_about(
    scraped: tuple[Sample, ...],
) -> None:
    assert set(CASES) == set(RULES)
    for alert, rule in RULES.items():
        world = timeline(scraped, *CASES[alert])
        late = MINUTE * SLOW.get(alert, 0)

        found = firing(lambda now, world=world, late=late: world(now + late))

        assert set(found) == {alert, *BESIDE.get(alert, ())}
        wanted = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert all(wanted <= dict(one.labels).keys() for one in found[alert]), alert


def test_rules_say_how_bad_it_is_and_what_to_do() -> None:
    for name, rule in RULES.items():
        assert name.startswith("Logship"), name
        assert rule["labels"] in ({"severity": "warning"}, {"severity": "critical"}), name
        assert set(rule["annotations"]) == {"summary", "description"}, name
        assert lasts(rule) >= 0


def test_rules_name_commands_and_chapters_that_exist() -> None:
    headings = {name for page in PAGES for name in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    told = " ".join(rule["annotations"]["description"] for rule in RULES.values())

    assert not untrue_commands(told)
    assert set(re.findall(r'[Cc]hapter "([^"]+)"', told)) <= headings
