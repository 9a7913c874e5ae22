"""A setting is the same as an option, a variable and a key: each takes what the others take."""

import json
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ByteSize
from pydantic.fields import FieldInfo

from broker.settings import BrokerSettings
from nats_logship.app.address import Address
from nats_logship.app.configuration import ProgramSettings, load, name_of
from receiver.settings import ReceiverSettings, ReplaySettings, StreamSettings
from receiver.table.settings import TableSettings
from shipper.settings import ShipperSettings

OWN_FORM = {
    **{"since": "2h", "until": "seq:7", "partition": "0,3", "time_zone": "Europe/Berlin"},
    **{"file_mode": "0644", "folder_mode": "0755", "owner": "root:root"},
    **{"round_size": "1MiB", "max_line": "64KiB", "path_template": "{host}/{file}"},
    **{"include_lines": "error{1,2}|fatal", "exclude_lines": "debug,trace\nhealth"},
    **{"longest_interval": "1s", "max_rate": "5MB/s", "priority": "warning"},
    "nats": '{"max_connections": 7, "server_tags": ["ssd"]}',
    "console": '{"listen": "127.0.0.1:8081"}',
    "server": "nats://b1:4222,nats://b2:4222",
    "spark_conf": "spark.cores.max=4\nspark.executor.memory=1g",
    "storage_option": "AWS_REGION=eu-west-1\nAWS_ALLOW_HTTP=true",
    "site_remote": "nats-leaf://hub:7422",
    "route": "nats-route://b2:6222,b3:6222",
}
OF_KIND = {bool: "true", timedelta: "48h", ByteSize: "50GB", Address: "127.0.0.1:5222", int: "4"}


def kinds_of(annotation: object) -> list[object]:
    """Return a type, and those that it is made of."""
    return [annotation, *(kind for one in get_args(annotation) for kind in kinds_of(one))]


def written(name: str, field: FieldInfo) -> str:
    """Return a text that a setting takes: its own form, any of its kind, or its last choice."""
    kinds = kinds_of(field.annotation)
    of_kind = [text for kind, text in OF_KIND.items() if kind in kinds]
    choices = [kind for kind in kinds if isinstance(kind, str)]
    return OWN_FORM.get(name, [*of_kind, *choices[-1:], "a,b" if tuple in kinds else "text"][0])


MODELS = [BrokerSettings, ShipperSettings, ReceiverSettings]
COMMANDS = {
    **{model.program: model for model in MODELS},
    "replay": ReplaySettings,
    "verify": StreamSettings,
    "table": TableSettings,
}
REQUIRED: dict[type[ProgramSettings], tuple[str, ...]] = {
    ShipperSettings: ("file",),
    ReplaySettings: ("since", "output"),
    TableSettings: ("table",),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_variable_and_a_key_of_the_file_are_read_as_the_option_is(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = COMMANDS[command], tmp_path / "x.toml"
    alone = {"once", "records"} & set(model.model_fields)  # exclude others

    for names in (set(model.model_fields) - alone, {*alone, *REQUIRED.get(model, ())}):
        texts = {name: written(name, model.model_fields[name]) for name in names}
        by_option = load(model, texts, None)
        keys = (f"{name_of(name)} = {json.dumps(text)}\n" for name, text in texts.items())
        path.write_text("".join(keys), "utf-8")
        by_key = load(model, {}, path)
        with monkeypatch.context() as only_here:
            for name, text in texts.items():
                only_here.setenv(f"{model.model_config['env_prefix']}{name_of(name)}".upper(), text)
            by_variable = load(model, {}, None)

        assert by_option.model_dump() == by_key.model_dump() == by_variable.model_dump()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_setting_is_called_as_an_orchestrators_variable(command: str) -> None:
    arguments = [name_of(name).split("_") for name in COMMANDS[command].model_fields]

    assert [one for one in arguments if "port" in one or one[:2] == ["service", "host"]] == []
