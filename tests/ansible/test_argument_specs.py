"""Every setting of a program is a variable's key, described and typed as the program has it, and comes out as it went in."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.fields import FieldInfo

from broker.app.configuration import load, name_of
from tests.ansible.argument_specs import ROLES, SETTINGS, described, is_secret, renewed, spec_path
from tests.ansible.playing import INTERPRETER, play, play_here, rendered, rendering
from tests.test_settings import written

BY_LINE = ("include_lines", "exclude_lines", "spark_conf")
OWN_FORM = {"tls_ca_pem": 'two\nlines, "quoted" \\ and ünïcode'}


def options(role: str) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(spec_path(role).read_text("utf-8"))
    found: dict[str, Any] = spec["argument_specs"]["main"]["options"]
    return found


def text_of(name: str, field: FieldInfo) -> str:
    """Return a text that a setting takes."""
    return OWN_FORM.get(name) or written(name, field)


def typed(role: str, name: str) -> object:
    """Return a value as an operator writes it in YAML."""
    field = SETTINGS[role].model_fields[name]
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


@pytest.mark.parametrize("role", SETTINGS)
def test_a_spec_has_all_settings_and_a_role_takes_nothing_that_is_not_described(role: str) -> None:
    defaults = yaml.safe_load((ROLES / role / "defaults/main.yml").read_text("utf-8"))

    assert spec_path(role).read_text("utf-8") == renewed(role), "run make argument-specs"
    for name, option in options(role).items():
        assert option["description"]
        assert option["type"]
        assert option.get("default", defaults[name]) == defaults[name]
    assert set(defaults) == set(options(role))


def templated(role: str) -> list[dict[str, Any]]:
    """Return the tasks that check all settings of a role against its spec, and say what the role makes of them."""
    settings = {
        name_of(name): typed(role, name)
        for name, field in SETTINGS[role].model_fields.items()
        if not is_secret(field)
    }
    checked = {
        "argument_spec": {f"{role}_settings": options(role)[f"{role}_settings"]},
        "provided_arguments": {f"{role}_settings": settings},
    }
    given = {f"{role}_settings": settings, f"{role}_all_settings": settings}
    return [
        {"ansible.builtin.validate_argument_spec": checked},
        rendering(ROLES / role / "templates/settings.toml.j2", **given),
    ]


@pytest.mark.timeout(900)
def test_settings_come_out_as_the_program_reads_them(tmp_path: Path) -> None:
    played = play_here(tmp_path, [task for role in SETTINGS for task in templated(role)])

    own = tmp_path / "one.toml"
    for model, text in zip(SETTINGS.values(), rendered(played), strict=True):
        for name, field in model.model_fields.items():
            if is_secret(field):
                continue
            lines = text.splitlines()
            (line,) = (line for line in lines if line.startswith(f"{name_of(name)} = "))
            own.write_text(f"{line}\n", "utf-8")
            by_option = load(model, {name: text_of(name, field)}, None)
            assert getattr(load(model, {}, own), name) == getattr(by_option, name)


@pytest.mark.timeout(900)
def test_a_misspelt_setting_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    included = {"name": "logship_shipper"}
    given = {"logship_shipper_settings": {"fiel": ["a.log"]}}

    done = play_here(tmp_path, [{"ansible.builtin.include_role": included, "vars": given}])

    assert done.returncode != 0
    assert "fiel" in done.stdout
    assert "Look for what is installed" not in done.stdout


@pytest.mark.timeout(900)
def test_what_a_role_finds_for_a_cluster_is_what_its_program_takes(tmp_path: Path) -> None:
    """The broker's routes, the addresses of hosts and receivers, as the example inventory has them."""
    path, inventory = tmp_path / "tasks.yml", tmp_path / "hosts.yml"
    programs = ("broker", "receiver", "shipper")
    plays = [
        {
            "hosts": f"logship_{program}s[0]",
            "connection": "local",
            "gather_facts": False,
            "vars_files": [f"{folder}/defaults/main.yml", f"{folder}/vars/main.yml"],
            "tasks": [rendering(folder / "templates/settings.toml.j2")],
        }
        for program in programs
        for folder in [ROLES / f"logship_{program}"]
    ]
    path.write_text(yaml.safe_dump(plays), "utf-8")
    inventory.write_bytes((ROLES.parent / "inventories/cluster/hosts.yml").read_bytes())
    (tmp_path / "group_vars").symlink_to(ROLES.parent / "group_vars")

    played = play(["--inventory", inventory, path, "--extra-vars", INTERPRETER])

    found = {}
    for program, text in zip(programs, rendered(played), strict=True):
        (tmp_path / program).write_text(text, "utf-8")
        found[program] = load(SETTINGS[f"logship_{program}"], {}, tmp_path / program).model_dump()
    names = [f"broker{number}.example.net" for number in (1, 2, 3)]
    assert found["broker"]["route"] == tuple(f"{name}:6222" for name in names)
    assert found["broker"]["server_name"] == "broker1-example-net"
    for program in ("receiver", "shipper"):
        assert found[program]["server"] == tuple(f"nats://{name}:4222" for name in names)
