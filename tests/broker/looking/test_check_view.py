import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.looking.check_view import Form, render
from broker.looking.findings import Check, Finding, Gauge, Grade, Limit, Unit, Verdict

_WELL = Verdict(
    Check.STREAM,
    (Finding(Grade.OK, "10 messages"),),
    (Gauge("messages", 10, "Messages"), Gauge("bytes", 5000000, "Bytes", Unit.BYTES)),
)
_BAD = Verdict(
    Check.LAG,
    (
        Finding(Grade.WARNING, "p1 | waits"),
        Finding(Grade.CRITICAL, "p0 waits"),
        Finding(Grade.OK, "so"),
    ),
    (
        Gauge("age_seconds", 0.25, "Age", Unit.SECONDS, Limit(0.1, 2)),
        Gauge("partition_messages", 3, "Wait", label="partition", of='a"\\\n'),
        Gauge("partition_messages", 4, "Wait", label="partition", of="1"),
    ),
)
_ABSENT = Verdict(Check.ROOM, absent="nobody tells")


def test_nagios_hears_the_worst_first_on_one_line_with_performance_data() -> None:
    assert render([_WELL, _BAD], Form.NAGIOS) == (
        "CRITICAL logbroker Crit:lag: p0 waits Warn:lag: p1 / waits"
        " | stream_messages=10 stream_bytes=5000000B lag_age_seconds=0.25s;0.1;2"
    )


def test_nagios_hears_of_every_check_when_all_is_well() -> None:
    assert render([_WELL, _ABSENT], Form.NAGIOS).startswith(
        "OK logbroker OK:stream: 10 messages OK:room: nobody tells |"
    )


def test_prometheus_reads_each_number_with_its_labels() -> None:
    page = render([_WELL, _BAD, _ABSENT], Form.PROMETHEUS) + "\n"

    families = {family.name: family for family in text_string_to_metric_families(page)}

    codes = families["logbroker_check_status_code"].samples
    assert {one.labels["check"]: one.value for one in codes} == {"stream": 0, "lag": 2, "room": 0}
    waits = families["logbroker_check_lag_partition_messages"].samples
    assert {one.labels["partition"]: one.value for one in waits} == {r'a"\\n': 3, "1": 4}
    assert families["logbroker_check_stream_bytes"].samples[0].value == 5_000_000
    assert len(re.findall("^# TYPE", page, re.M)) == len(families)


def test_programs_read_findings_by_grade() -> None:
    found = json.loads(render([_BAD, _ABSENT], Form.JSON))

    assert found["status"] == "CRITICAL"
    lag, room = found["checks"]
    assert (lag["critical"], lag["warning"], lag["ok"]) == (["p0 waits"], ["p1 | waits"], ["so"])
    assert lag["perf_data"][0]["unit"] == "s"
    assert room["absent"] == "nobody tells"


def test_people_read_a_table_that_ends_with_the_whole() -> None:
    lines = render([_WELL, _BAD, _ABSENT], Form.TEXT).splitlines()

    assert [line.split()[:2] for line in lines[1:5]] == [
        ["OK", "stream"],
        ["CRITICAL", "lag"],
        ["WARNING", "lag"],
        ["lag", "so"],
    ]
    assert lines[-1] == "CRITICAL"


@pytest.mark.parametrize("form", list(Form))
def test_nothing_at_all_is_well_in_every_form(form: Form) -> None:
    assert isinstance(render([], form), str)
