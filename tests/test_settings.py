"""A setting is the same thing as an option, a variable and a key: what one of them takes, all of them take."""

import json
from pathlib import Path

import pytest

from broker.app.configuration import ProgramSettings, load, name_of
from broker.settings import BrokerSettings
from receiver.settings import ReceiverSettings, ReplaySettings, StreamSettings
from shipper.settings import ShipperSettings

WRITTEN = {
    "nats": '{"max_connections": 7, "server_tags": ["ssd"]}',
    "streams": "2",
    "listen": "127.0.0.1:5222",
    "http": "127.0.0.1:9222",
    "metrics": "127.0.0.1:9463",
    "since": "2h",
    "until": "seq:7",
    "speed": "original",
    "server": "nats://b1:4222,nats://b2:4222",
    "file": "/var/log/a.log,/var/log/b.log",
    "exclude": "/var/log/a.log,/var/log/b.log",
    "from_": "end",
    "ignore_older": "30d",
    "hold_deleted": "1h",
    "poll_every": "250ms",
    "watch": "false",
    "partition": "0,3",
    "include_lines": "error{1,2}|fatal",
    "exclude_lines": "debug,trace\nhealth",
    "max_age": "12h",
    "grace": "3s",
    "patience": "1m",
    "max_bytes": "50GB",
    "max_store": "50GB",
    "reserve": "1GB",
    "memory": "256MiB",
    "allow_anonymous": "true",
    "encryption_key_file": "/etc/logship/store.key",
    "path_template": "{host}/{file}",
    "file_mode": "0644",
    "folder_mode": "0755",
    "owner": "root:root",
    "rotate_size": "10MB",
    "spark_conf": "spark.cores.max=4\nspark.executor.memory=1g",
    "rotate_every": "1h",
    "time_zone": "Europe/Berlin",
    "max_batch": "32MiB",
    "round_size": "1MiB",
    "max_line": "64KiB",
    "replicas": "3",
    "cluster_listen": "127.0.0.1:7222",
    "site_listen": "127.0.0.1:7422",
    "site_remote": "nats-leaf://hub:7422",
    "route": "nats-route://b2:6222,b3:6222",
    "partitions": "4",
    "keep": "7",
    "keep_age": "30d",
    "keep_bytes": "100GB",
    "compress": "gzip",
    "compression": "none",
    "discard": "old",
    "master": "local[2]",
    "host": "web01.example.net",
    "log_level": "debug",
    "log_format": "json",
    "once": "true",
    "take_over": "true",
    "standby": "true",
    "takeover_after": "30s",
    "ack": "false",
    "host_connections": "100",
    "max_streams": "100",
    "max_consumers": "100",
    "receiver_connections": "100",
    "require_certificates": "true",
    "tls_first": "true",
    "inbox_prefix": "_INBOX_web01",
    "api_prefix": "$JS.hub.API",
}
MODELS = [BrokerSettings, ShipperSettings, ReceiverSettings]
COMMANDS = {
    **{model.program: model for model in MODELS},
    "replay": ReplaySettings,
    "verify": StreamSettings,
}
REQUIRED: dict[type[ProgramSettings], tuple[str, ...]] = {
    ShipperSettings: ("file",),
    ReplaySettings: ("since", "output"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_variable_and_a_key_of_the_file_are_read_as_the_option_is(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = COMMANDS[command], tmp_path / "x.toml"
    once = {"once"} & set(model.model_fields)  # excludes others

    for names in (set(model.model_fields) - once, {*once, *REQUIRED.get(model, ())}):
        texts = {name: WRITTEN.get(name, "text") for name in names}
        by_option = load(model, texts, None)
        keys = (f"{name_of(name)} = {json.dumps(text)}\n" for name, text in texts.items())
        path.write_text("".join(keys), "utf-8")
        by_key = load(model, {}, path)
        with monkeypatch.context() as only_here:
            for name, text in texts.items():
                only_here.setenv(f"LOG{model.program[3:]}_{name_of(name)}".upper(), text)
            by_variable = load(model, {}, None)

        assert by_option.model_dump() == by_key.model_dump() == by_variable.model_dump()


@pytest.mark.parametrize("command", COMMANDS)
def test_no_setting_is_called_as_an_orchestrators_variable(command: str) -> None:
    words = [name_of(name).split("_") for name in COMMANDS[command].model_fields]

    assert [one for one in words if "port" in one or one[:2] == ["service", "host"]] == []
