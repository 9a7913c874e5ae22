"""Verdicts as monitoring systems read them: Nagios, Prometheus, JSON, and a text for people. Decides only."""

import json
import re
from collections.abc import Callable, Sequence
from enum import Enum

from broker.app.columns import columns
from broker.app.printable import printable
from broker.looking.findings import Finding, Gauge, Grade, Verdict, overall

__all__ = ["Form", "render"]

_NAME = "logbroker"
_SHORT = {Grade.CRITICAL: "Crit", Grade.WARNING: "Warn", Grade.UNKNOWN: "Unknown", Grade.OK: "OK"}
_WORST_FIRST = (Grade.CRITICAL, Grade.WARNING, Grade.UNKNOWN)


class Form(Enum):
    """How verdicts are written, in the words of `nats server check`."""

    NAGIOS = "nagios"
    PROMETHEUS = "prometheus"
    JSON = "json"
    TEXT = "text"


def render(verdicts: Sequence[Verdict], form: Form) -> str:
    """Return verdicts as text, without a last newline."""
    return _FORMS[form](verdicts)


def _nagios(verdicts: Sequence[Verdict]) -> str:
    """Return one line, as a plugin of Nagios says it; performance data of the whole, not of each partition or server."""
    grade = overall(verdict.grade for verdict in verdicts)
    told = [
        f"{_SHORT[wanted]}:{verdict.check.value}: {_piped(finding.text)}"
        for wanted in _WORST_FIRST
        for verdict in verdicts
        for finding in verdict.findings
        if finding.grade is wanted
    ] or [f"OK:{verdict.check.value}: {_piped(_first(verdict))}" for verdict in verdicts]
    data = [
        _performance(verdict, gauge)
        for verdict in verdicts
        for gauge in verdict.gauges
        if not gauge.label
    ]
    return f"{grade.name} {_NAME} {' '.join(told)}" + (f" | {' '.join(data)}" if data else "")


def _first(verdict: Verdict) -> str:
    return verdict.absent or "; ".join(finding.text for finding in verdict.findings)


def _piped(text: str) -> str:
    return printable(text).replace("|", "/")  # it begins the performance data


def _performance(verdict: Verdict, gauge: Gauge) -> str:
    limits = [_number(gauge.limit.warn), _number(gauge.limit.critical)]
    bounds = f";{';'.join(limits)}".rstrip(";")
    return f"{verdict.check.value}_{gauge.name}={_number(gauge.value)}{gauge.unit.value}{bounds}"


def _number(value: float | None) -> str:
    # Nagios knows no exponents
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def _json(verdicts: Sequence[Verdict]) -> str:
    return json.dumps(
        {
            "status": overall(verdict.grade for verdict in verdicts).name,
            "checks": [_as_json(verdict) for verdict in verdicts],
        },
        indent=2,
    )


def _as_json(verdict: Verdict) -> dict[str, object]:
    return {
        "check_name": verdict.check.value,
        "status": verdict.grade.name,
        "critical": _texts(verdict.findings, Grade.CRITICAL),
        "warning": _texts(verdict.findings, Grade.WARNING),
        "unknown": _texts(verdict.findings, Grade.UNKNOWN),
        "ok": _texts(verdict.findings, Grade.OK),
        "absent": verdict.absent or None,
        "perf_data": [
            {
                "name": gauge.name,
                "value": gauge.value,
                "unit": gauge.unit.value,
                "warning": gauge.limit.warn,
                "critical": gauge.limit.critical,
                **({gauge.label: gauge.of} if gauge.label else {}),
            }
            for gauge in verdict.gauges
        ],
    }


def _texts(findings: Sequence[Finding], grade: Grade) -> list[str]:
    return [finding.text for finding in findings if finding.grade is grade]


def _text(verdicts: Sequence[Verdict]) -> str:
    rows = [
        (finding.grade.name if place == 0 or finding.grade else "", check, finding.text)
        for verdict in verdicts
        for check in [verdict.check.value]
        for place, finding in enumerate(_shown(verdict))
    ]
    grade = overall(verdict.grade for verdict in verdicts)
    return "\n".join([*columns([("status", "check", ""), *rows], left=(0, 1, 2)), "", grade.name])


def _shown(verdict: Verdict) -> Sequence[Finding]:
    if verdict.absent:
        return [Finding(Grade.OK, verdict.absent)]
    return sorted(verdict.findings, key=lambda finding: -finding.grade)


def _prometheus(verdicts: Sequence[Verdict]) -> str:
    """Return families for the text file collector of node_exporter, each with its HELP and TYPE once."""
    families: dict[str, list[str]] = {}
    for verdict in verdicts:
        check = verdict.check.value
        codes = _family(families, "check_status_code", "0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN")
        codes.append(f'{_NAME}_check_status_code{{check="{check}"}} {int(verdict.grade)}')
        for gauge in verdict.gauges:
            name = f"check_{check}_{gauge.name}"
            labels = f'{{{gauge.label}="{_escaped(gauge.of)}"}}' if gauge.label else ""
            lines = _family(families, name, gauge.help)
            lines.append(f"{_NAME}_{name}{labels} {_number(gauge.value)}")
    return "\n".join(line for lines in families.values() for line in lines)


def _family(families: dict[str, list[str]], name: str, told: str) -> list[str]:
    head = [f"# HELP {_NAME}_{name} {told}", f"# TYPE {_NAME}_{name} gauge"]
    return families.setdefault(name, head)


def _escaped(text: str) -> str:
    return re.sub(r'[\\"]', lambda found: f"\\{found[0]}", printable(text))


_FORMS: dict[Form, Callable[[Sequence[Verdict]], str]] = {
    Form.NAGIOS: _nagios,
    Form.PROMETHEUS: _prometheus,
    Form.JSON: _json,
    Form.TEXT: _text,
}
