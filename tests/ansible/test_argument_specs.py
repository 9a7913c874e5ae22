"""Every setting of a program is a key of a role's variable, and reaches the program unchanged."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.fields import FieldInfo

from nats_logship.app.configuration import ProgramSettings, load, name_of
from tests.ansible.argument_specs import (
    ROLES,
    SETTINGS,
    described,
    is_secret,
    renewed,
    role_of,
    spec_path,
)
from tests.ansible.playing import INTERPRETER, play, rendered, rendering
from tests.test_settings import written

BY_LINE = ("include_lines", "exclude_lines", "spark_conf", "storage_option")
OWN_FORM = {"tls_ca_pem": 'two\nlines, "quoted" \\ and ünïcode'}


def options(role: str) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(spec_path(role).read_text("utf-8"))
    found: dict[str, Any] = spec["argument_specs"]["main"]["options"]
    return found


def text_of(name: str, field: FieldInfo) -> str:
    return OWN_FORM.get(name) or written(name, field)


def typed(prefix: str, name: str) -> object:
    """Return a value as an operator writes it in YAML."""
    field = SETTINGS[prefix].model_fields[name]
    text = text_of(name, field)
    match described(field)["type"]:
        case "list":
            return text.splitlines() if name in BY_LINE else text.split(",")
        case "bool":
            return text == "true"
        case "int":
            return int(text)
        case "dict":
            return json.loads(text)
        case _:
            return text


@pytest.mark.parametrize("role", sorted({*map(role_of, SETTINGS)}))
def test_a_spec_has_all_settings_and_a_role_takes_only_described_ones(role: str) -> None:
    defaults = yaml.safe_load((ROLES / role / "defaults/main.yml").read_text("utf-8"))

    assert spec_path(role).read_text("utf-8") == renewed(role), "run make argument-specs"
    for name, option in options(role).items():
        assert option["description"]
        assert option["type"]
        assert option.get("default", defaults[name]) == defaults[name]
    assert set(defaults) == set(options(role))


def templated(prefix: str) -> list[dict[str, Any]]:
    """Return the tasks that check all settings against a role's spec and print its result."""
    role, name = role_of(prefix), f"{prefix}_settings"
    settings = {
        name_of(one): typed(prefix, one)
        for one, field in SETTINGS[prefix].model_fields.items()
        if not is_secret(field)
    }
    checked = {
        "argument_spec": {name: options(role)[name]},
        "provided_arguments": {name: settings},
    }
    given = {f"{role}_settings": settings, f"{role}_all_settings": settings}
    return [
        {"ansible.builtin.validate_argument_spec": checked},
        rendering(ROLES / role / "templates/settings.toml.j2", **given),
    ]


def misspelt() -> dict[str, Any]:
    """Return the task that plays a role with an unknown setting, which must be refused by name."""
    included = {"name": "logship_shipper"}
    given = {"logship_shipper_settings": {"fiel": ["a.log"]}}
    named = {"that": "'fiel' in ansible_failed_result | string"}
    return {
        "block": [{"ansible.builtin.include_role": included, "vars": given}],
        "rescue": [{"name": "It is refused", "ansible.builtin.assert": named}],
    }


def found(prefix: str) -> dict[str, Any]:
    """Return the play that says what a role makes of the example inventory."""
    role = role_of(prefix)
    own = {} if prefix == role else {f"{role}_all_settings": f"{{{{ {prefix}_all_settings }}}}"}
    return {
        "hosts": f"{role}s[0]",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [f"{ROLES / role}/defaults/main.yml", f"{ROLES / role}/vars/main.yml"],
        "tasks": [rendering(ROLES / role / "templates/settings.toml.j2", **own)],
    }


@pytest.mark.timeout(900)
def test_settings_reach_programs_unchanged_and_misspelt_ones_are_refused(tmp_path: Path) -> None:
    """All in one run of Ansible, which is slow to start, on the example of a cluster."""
    tasks = [task for prefix in SETTINGS for task in templated(prefix)]
    here = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    plays = [here | {"tasks": [*tasks, misspelt()]}, *map(found, SETTINGS)]
    path, inventory = tmp_path / "play.yml", tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump(plays), "utf-8")
    inventory.write_bytes((ROLES.parent / "inventories/cluster/hosts.yml").read_bytes())
    (tmp_path / "group_vars").symlink_to(ROLES.parent / "group_vars")

    played = play(["--inventory", inventory, path, "--extra-vars", INTERPRETER])

    texts = rendered(played)
    for model, text in zip(SETTINGS.values(), texts[: len(SETTINGS)], strict=True):
        come_out(model, text, tmp_path / "one.toml")
    assert "TASK [It is refused]" in played.stdout
    assert "Look for what is installed" not in played.stdout
    names = [f"broker{number}.example.net" for number in (1, 2, 3)]
    for model, text in zip(SETTINGS.values(), texts[len(SETTINGS) :], strict=True):
        (tmp_path / "found.toml").write_text(text, "utf-8")
        settings = load(model, {}, tmp_path / "found.toml").model_dump()
        if model is SETTINGS["logship_broker"]:
            assert settings["route"] == tuple(f"{name}:6222" for name in names)
            assert settings["server_name"] == "broker1-example-net"
        else:
            assert settings["server"] == tuple(f"nats://{name}:4222" for name in names)


def come_out(model: type[ProgramSettings], text: str, own: Path) -> None:
    """Expect that the program reads the role's text of a setting as it reads the option."""
    fields = model.model_fields.items()
    required = {name: text_of(name, field) for name, field in fields if field.is_required()}
    for name, field in fields:
        if is_secret(field):
            continue
        (line,) = (one for one in text.splitlines() if one.startswith(f"{name_of(name)} = "))
        own.write_text(f"{line}\n", "utf-8")
        others = {one: text for one, text in required.items() if one != name}
        by_option = load(model, {**others, name: text_of(name, field)}, None)
        assert getattr(load(model, others, own), name) == getattr(by_option, name)
