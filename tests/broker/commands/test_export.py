"""`logbroker export` and `import` copy configurations, in the format of the nats CLI."""

import json
from pathlib import Path

import pytest

from broker.backup.closing import mark_config
from broker.commands.apply import read_stream
from nats_logship.app.exits import ConfigurationError
from nats_logship.client.connection import Connection
from tests.broker.conftest import Call, ask, logbroker

SETTINGS = ("--partitions", "11", "--max-bytes", "100MB")


@pytest.mark.nats
def test_an_import_gives_a_broker_the_exported_configuration(
    fresh_url: str, second_url: str, tmp_path: Path
) -> None:
    def call(url: str, *command: str | Path) -> str:
        done = logbroker(*command, "--server", url)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def export(url: str, folder: Path) -> dict[str, str]:
        call(url, "export", folder)
        return {path.stem: path.read_text("utf-8") for path in folder.iterdir()}

    call(fresh_url, "apply", *SETTINGS)
    folder = tmp_path / "configuration"
    files = export(fresh_url, folder)
    call(second_url, "import", folder)

    assert files.keys() == {"LOGS", "KV_LOGS_CONFIG", "KV_LOGS_OFFSETS", "KV_LOGS_POSITIONS"}
    assert export(second_url, tmp_path / "again") == files
    for url in (fresh_url, second_url):
        assert call(url, "import", folder) == "nothing to do\n"
    left = json.loads(call(second_url, "apply", *SETTINGS, "--dry-run", "--json"))
    assert {one["kind"] for one in left} == {"entry"}

    stream = json.loads(files["LOGS"]) | {"max_age": 10**15}
    (folder / "LOGS.json").write_text(json.dumps(stream), "utf-8")
    update = "~ update stream LOGS\n    - max_age: 1d  + max_age: 11d13h46m40s\n"
    assert call(fresh_url, "import", folder) == update


@pytest.mark.nats
def test_a_half_restored_stream_is_not_changed(call: Call, logs_url: str, tmp_path: Path) -> None:
    async def mark(connection: Connection) -> None:
        config = (await connection.api("STREAM.INFO.KV_LOGS_CONFIG"))["config"]
        await connection.api("STREAM.UPDATE.KV_LOGS_CONFIG", mark_config(config))

    call("export", tmp_path)
    ask(logs_url, mark)

    refused = call("import", tmp_path)

    assert refused.returncode == 78
    assert "KV_LOGS_CONFIG" in refused.stderr
    assert "logbroker restore" in refused.stderr


def test_a_stream_is_read_as_the_nats_cli_writes_it(tmp_path: Path) -> None:
    config = {"name": "S", "max_age": 5, "metadata": {"_nats.ver": "1", "owner": "ops"}}
    (tmp_path / "S.json").write_text(json.dumps(config))

    found = read_stream(tmp_path / "S.json")

    assert (found.kind, found.name) == ("stream", "S")
    assert found.config == {**config, "metadata": {"owner": "ops"}}


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[" * 10**5, "[]", '{"name": "a", "metadata": 1}', '{"name": "a", "subjects": "b"}'),
        *('{"name": "a b"}', '{"name": 1}', '{"ack_policy": "all"}'),
    ],
)
def test_a_file_that_describes_no_stream_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)

    with pytest.raises(ConfigurationError, match=r"x\.json does not describe a stream"):
        read_stream(tmp_path / "x.json")
