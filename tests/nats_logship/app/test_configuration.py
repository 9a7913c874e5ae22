from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import click
import pytest
from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from nats_logship.app.configuration import Many, ProgramSettings, load
from nats_logship.app.exits import ConfigurationError
from nats_logship.app.units import Duration
from receiver.search.settings import SearchSettings
from receiver.settings import ReceiverSettings, ReplaySettings
from receiver.table.settings import TableSettings


class Example(ProgramSettings):
    model_config = SettingsConfigDict(env_prefix="EXAMPLE_")
    program: ClassVar[str] = "example"

    name: str = Field("default", description="A name.")
    names: Many = Field((), description="Names.")
    wait: Duration = Field(timedelta(seconds=1), description="A time.")
    needed: int = Field(description="A number.")
    enough: int = Field(100, description="A larger number.")

    @model_validator(mode="after")
    def _in_order(self) -> "Example":
        if self.needed > self.enough:
            raise ValueError(f"needed ({self.needed}) must not be more than enough")
        return self


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "example.toml"
    path.write_text('name = "file"\nneeded = 1\nnames = ["a", "b"]\n', "utf-8")
    return path


def test_an_option_beats_environment_file_credential_and_default(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = tmp_path / "credentials" / "example.toml"
    credential.parent.mkdir()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credential.parent))

    assert load(Example, {"needed": 1}, None).name == "default"
    credential.write_text('enough = 7\nname = "credential"\n', "utf-8")
    assert load(Example, {"needed": 1}, None).name == "credential"
    assert (load(Example, {}, file).name, load(Example, {}, file).enough) == ("file", 7)
    monkeypatch.setenv("EXAMPLE_NAME", "")
    assert load(Example, {}, file).name == "file"
    monkeypatch.setenv("EXAMPLE_NAME", "environment")
    assert load(Example, {}, file).name == "environment"
    assert load(Example, {"name": "option"}, file).name == "option"


@pytest.mark.parametrize("service", ["EXAMPLE", "EXAMPLE_0_HEADLESS"])
def test_variables_that_kubernetes_sets_for_a_service_are_ignored(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "tcp://10.0.0.1:4222"
    for name in ("HOST", "PORT", "PORT_CLIENT", "PORT_HTTP_METRICS"):
        monkeypatch.setenv(f"{service}_SERVICE_{name}", "4222")
    for name in ("", "_4222_TCP", "_4222_TCP_PROTO", "_4222_TCP_PORT", "_4222_TCP_ADDR", "_53_UDP"):
        monkeypatch.setenv(f"{service}_PORT{name}", url)

    assert load(Example, {"needed": 1}, None).needed == 1


@pytest.mark.parametrize("name", ["PORT", "HTTP_PORT", "NAEM", "EXPORT"])
def test_other_variables_with_the_prefix_are_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"EXAMPLE_{name}", "tcp://10.0.0.1:4222" if name == "EXPORT" else "4222")

    with pytest.raises(ConfigurationError, match=f"EXAMPLE_{name} is not a setting") as refused:
        load(Example, {"needed": 1}, None)
    assert ("; did you mean EXAMPLE_NAME or EXAMPLE_NAMES?" in str(refused.value)) == (
        name == "NAEM"
    )


def test_all_commands_of_a_program_take_its_variables_and_pass_over_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    variables = {"SERVER": "nats://b1:4222", "PARTITION": "0", "SINCE": "2h", "LEVEL": "error"}
    for name, value in (variables | {"OUTPUT": "/srv", "TABLE": "/srv/table"}).items():
        monkeypatch.setenv(f"LOGRECEIVER_{name}", value)

    for model in (ReceiverSettings, ReplaySettings, SearchSettings, TableSettings):
        assert load(model, {}, None).server == ("nats://b1:4222",)

    monkeypatch.setenv("LOGRECEIVER_LVEL", "error")
    with pytest.raises(ConfigurationError, match=r"LVEL is not a setting; .*LOGRECEIVER_LEVEL"):
        load(SearchSettings, {}, None)


def test_commands_take_the_file_of_the_program_itself(tmp_path: Path) -> None:
    file = tmp_path / "logreceiver.toml"
    shared = (
        'server = "nats://b1:4222"\npartition = "0"\ncompress = "gzip"\nlisten = "[::1]:9465"\n'
    )
    file.write_text(shared, "utf-8")
    for model in (ReceiverSettings, ReplaySettings, SearchSettings, TableSettings):
        needed = {"output": "t", "table": "t", "since": "2h"}
        options = {name: needed[name] for name in needed.keys() & model.model_fields.keys()}
        assert load(model, options, file).server == ("nats://b1:4222",)

    for key, model in (("lvel", SearchSettings), ("level", ReceiverSettings)):
        file.write_text(f'{key} = "error"', "utf-8")
        with pytest.raises(ConfigurationError, match=f"{key}: not a setting of logreceiver;"):
            load(model, {}, file)


@pytest.mark.parametrize(
    ("options", "variable", "content", "text"),
    [
        ({"wait": "soon"}, "", "", r"^--wait: .*is not a duration"),
        ({}, "", 'wait = "soon"', r"x\.toml: wait: .*is not a duration"),
        ({}, "later", 'wait = "soon"', r"^EXAMPLE_WAIT: .*is not a duration"),
        ({"needed": 9}, "", "enough = 3", r"^needed \(9\) must not be more than enough"),
        ({}, "", 'enough = "many"', r"x\.toml: enough: 'many'"),
        ({}, "", "enuogh = 7", r"x\.toml: enuogh: not a setting of example; did you mean enough"),
        ({}, "", '"En-ough" = 7', r"x\.toml: En-ough: not a setting of .*; did you mean enough"),
        ({}, "", "zzz = 7", r"x\.toml: zzz: not a setting of example; see --help"),
        ({}, "", "# needed", r"^--needed .*EXAMPLE_NEEDED"),
    ],
)
def test_an_error_names_the_option_variable_or_file(
    options: dict[str, object],
    variable: str,
    content: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(content if "needed" in content else f"needed = 1\n{content}", "utf-8")
    monkeypatch.setenv("EXAMPLE_WAIT", variable)

    kind = click.UsageError if text.startswith(("^--", "^needed")) else ConfigurationError
    with pytest.raises(kind, match=text):
        load(Example, options, path)


@pytest.mark.parametrize(
    "content", [b"\nname = '\xff'", b"= 1", b"\nname = " + b"[" * 9999, b"\nname = " + b"9" * 9999]
)
def test_an_error_names_a_file_that_is_not_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)

    with pytest.raises(ConfigurationError, match=r"x\.toml is not valid TOML"):
        load(Example, {"needed": 1}, path)
