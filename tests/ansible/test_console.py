"""What roles make of the variables of a console: its packages, settings, and where it is asked."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.argument_specs import ROLES
from tests.ansible.playing import play, rendered, rendering

ROLE_FILES = [
    str(ROLES / role / folder / "main.yml")
    for role in ("logship_broker", "logship_install")
    for folder in ("defaults", "vars")
]
TABLE, AFAR = "/srv/logs/table", "s3://logs/table"
TOKEN = "0123456789abcdef"
HANDED = "/run/credentials/logbroker-console.service/console-token"
EXTRAS = "logship_install_extras"
WHEELS = "logship_install_archives | join(' ')"
HERE = "logship_broker_console_has_table_here | string"
UNWANTED = "logship_broker_unwanted_secrets | map('basename') | join(' ')"
ASKED = "logship_broker_console_host ~ ' ' ~ logship_broker_console_port"
EXPECTED: tuple[tuple[str, bool, dict[str, str], str], ...] = (
    (EXTRAS, False, {"table": TABLE}, "broker"),
    (EXTRAS, True, {}, "broker"),
    (EXTRAS, True, {"table": TABLE}, "broker,table"),
    (EXTRAS, True, {"table": AFAR}, "broker,table"),
    (WHEELS, True, {}, "/wheels/broker.tar"),
    (WHEELS, True, {"table": AFAR}, "/wheels/broker.tar /wheels/receiver.tar"),
    (HERE, True, {"table": TABLE}, "True"),
    (HERE, True, {"table": AFAR}, "False"),
    (UNWANTED, False, {}, "logbroker-backup.toml logbroker-console.toml console-token"),
    (UNWANTED, True, {}, "logbroker-backup.toml console-token"),
    (UNWANTED, True, {"token_file": HANDED}, "logbroker-backup.toml"),
    (ASKED, True, {}, "127.0.0.1 8080"),
    (ASKED, True, {"listen": "8081"}, "127.0.0.1 8081"),
    (ASKED, True, {"listen": "0.0.0.0:8080"}, "127.0.0.1 8080"),
    (ASKED, True, {"listen": "[::]:8080"}, "::1 8080"),
    (ASKED, True, {"listen": "10.0.0.1:80"}, "10.0.0.1 80"),
)


def variables(settings: Mapping[str, str], **others: Any) -> dict[str, Any]:
    return {"logship_broker_console_settings": dict(settings), **others}


@pytest.mark.timeout(900)
def test_a_console_gets_what_its_variables_ask_for(tmp_path: Path) -> None:
    """All in one run of Ansible, which is slow to start."""
    tasks = []
    for name, runs, settings, value in EXPECTED:
        given = variables(settings, logship_broker_console=runs)
        expected = {"that": f"({name}) == '{value}'"}
        tasks.append({"name": name, "vars": given, "ansible.builtin.assert": expected})
    template = ROLES / "logship_broker/templates/console.toml.j2"
    for settings in ({"table": TABLE}, {"token_file": "/own"}):
        given = variables(settings, logship_broker_console_token=TOKEN)
        tasks.append(rendering(template, **given))
    extra = "logship_install_program=broker logship_install_wheelhouse=/wheels"
    one = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    one |= {"vars_files": ROLE_FILES, "tasks": tasks}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([one]), "utf-8")

    told = ["--inventory", "localhost,", "--extra-vars", extra]
    texts = rendered(play([*told, tmp_path / "play.yml"]))

    assert all(tomllib.loads(text)["server"] == ["nats://localhost:4222"] for text in texts)
    assert [tomllib.loads(text)["console"] for text in texts] == [
        {"token_file": HANDED, "table": TABLE},
        {"token_file": "/own"},
    ]
