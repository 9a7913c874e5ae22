"""Settings of a program: one model, read from options, environment variables and TOML files.

`command_line` makes the options from the same model, so the names, defaults and descriptions of
options, variables and keys are the same.
"""

import json
import os
import pkgutil
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import click
from pydantic import AliasGenerator, BeforeValidator, Field, PrivateAttr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from nats_logship.app.exits import ConfigurationError
from nats_logship.app.secret_files import check_kind

_OF_SERVICE = re.compile(
    r"([A-Z0-9]+_)*(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?"
    r"|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_URL = re.compile(r"(tcp|udp|sctp)://")
_SIMILARITY = 0.65  # of a name to the one that may be meant; 1 is equal
_SECRETS = {"nkey_seed", "password"}


def split_texts(value: object) -> object:
    """Split a text at commas; return anything else as it is."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


Many = Annotated[tuple[str, ...], BeforeValidator(split_texts)]
"""A setting of several texts: a repeated option, a list in TOML, commas in the environment."""


def _parse_table(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"{value!r} is neither a table nor a JSON object") from None


Table = Annotated[dict[str, Any], BeforeValidator(_parse_table)]
"""A setting that is a TOML table, or a JSON object in the environment; it has no option."""


def option(default: Any, metavar: str, description: str, **extra: Any) -> Any:
    """Return a field whose option takes `metavar`; a default of `...` makes it required."""
    return Field(default, description=description, json_schema_extra={"metavar": metavar, **extra})


def name_of(field: str) -> str:
    """Return the name of a setting: its field's, without the `_` after a word of Python."""
    return field.removesuffix("_")


class ProgramSettings(BaseSettings):
    """The settings of every program; a program's model adds fields, and its `env_prefix`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=AliasGenerator(validation_alias=name_of),
        env_prefix_target="alias",
        env_ignore_empty=True,
        enable_decoding=False,  # read a variable as an option, not as JSON
    )
    program: ClassVar[str]
    section: ClassVar[str] = "Logging"
    """The title of the model's own fields in the help."""
    sections: ClassVar[Mapping[str, Collection[str]]] = {}
    """Other titles, with the fields below them."""
    credential_kinds: ClassVar[Sequence[str]] = ()
    """The kinds of credentials that the program accepts, first the one it needs; empty for all."""
    models: ClassVar[Sequence[str]] = ()
    """All models of the program, as `module:class`; the first one is that without a command.

    Variables of all, and keys of the first in files, are no mistakes.
    """
    secrets: ClassVar[Sequence[str]] = ()
    """The settings that name files with secrets."""
    _files: Mapping[Path, Mapping[str, Any]] = PrivateAttr({})
    _config: Path | None = PrivateAttr(None)
    _given: frozenset[str] = PrivateAttr(frozenset())

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe messages to log: debug, info, warning or error."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of the log: text, or json with an object on each line."
    )

    @property
    def from_files(self) -> Mapping[str, Any]:
        """The settings in files; --config takes precedence over a credential of systemd."""
        return _merge(self._files)

    @property
    def config_file(self) -> Path | None:
        """The file that was given with --config."""
        return self._config

    @property
    def given(self) -> frozenset[str]:
        """The names of the settings that options and variables have given."""
        return self._given

    @property
    def secret_files(self) -> list[Path]:
        """The files with secrets, files of settings among them."""
        own = [path for path, content in self._files.items() if _has_secret(content)]
        return own + [path for name in self.secrets if (path := getattr(self, name))]

    def require_credential(self, *kinds: str) -> None:
        """Raise `ConfigurationError` if a file is a credential of another kind."""
        for path in filter(None, (*self._files, getattr(self, "nkey", None))):
            with suppress(OSError):  # the reader of the file reports it
                text = path.read_bytes().decode("utf-8", "replace")
                check_kind(path, text, self.program, kinds)


Model = TypeVar("Model", bound=ProgramSettings)


def load(model: type[Model], options: Mapping[str, Any], config: Path | None) -> Model:
    """Return the settings of a program.

    Precedence: `options` by field name, environment, the file `config`, a credential of systemd.
    Raises click.UsageError for a bad option, `ConfigurationError` for a bad variable, key or file.
    """
    named = {name_of(field): value for field, value in options.items()}
    variables = _read_variables(model)
    paths = (config, _find_credential(model.program))
    files = {path: _read(path, model) for path in paths if path is not None}
    content = _merge(files)
    others = {name for one in model.models[:1] for name in _names_of(pkgutil.resolve_name(one))}
    others -= _names_of(model)
    own = {key: value for key, value in content.items() if key not in others}
    try:
        settings = model(**{**own, **variables, **named})
    except ValidationError as error:
        raise _translate(error.errors()[0], model, named, variables, files) from None
    settings._files, settings._config = files, config
    settings._given = frozenset({**variables, **named})
    if model.credential_kinds:
        settings.require_credential(*model.credential_kinds)
    return settings


def suggest(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return the end of a message on an unknown name: the similar ones, or a hint at --help.

    All names have the prefix, which makes none of them similar.
    """
    bare = [one.removeprefix(prefix) for one in known]
    close = get_close_matches(name.removeprefix(prefix), bare, cutoff=_SIMILARITY)
    found = [f"{prefix}{one}" for one in close]
    return f"; did you mean {' or '.join(found)}?" if found else "; see --help for those there are"


def prefix_of(model: type[ProgramSettings]) -> str:
    """Return the prefix of a program's environment variables, e.g. `LOGBROKER_`."""
    return model.model_config.get("env_prefix", "")


def extra_of(field: FieldInfo) -> Mapping[str, Any]:
    """Return the `metavar` and `extra` of `option`."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _find_credential(program: str) -> Path | None:
    """Return the file of settings that systemd passes in secret (LoadCredential=), if any."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    with suppress(OSError):  # the folder belongs to another service
        if folder and (path := Path(folder, f"{program}.toml")).exists():
            return path
    return None


def _read(path: Path, model: type[ProgramSettings]) -> dict[str, Any]:
    """Read a file; raises `ConfigurationError`."""
    import tomllib  # most programs start without a file

    try:
        text = path.read_bytes().decode("utf-8")
        if model.credential_kinds:
            check_kind(path, text, model.program, model.credential_kinds)
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}; check --config") from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from None


def _has_secret(content: Mapping[str, Any]) -> bool:
    # an address may hold a password
    return not _SECRETS.isdisjoint(content) or "@" in str(content.get("server", ""))


def _merge(files: Mapping[Path, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of all files; the first file takes precedence."""
    return {key: value for file in reversed([*files.values()]) for key, value in file.items()}


def _read_variables(model: type[ProgramSettings]) -> dict[str, Any]:
    """Return the settings in the environment; raises `ConfigurationError` for an unknown one."""
    prefix = prefix_of(model)
    known = {f"{prefix}{one}".upper() for one in (*_names_of(model), "config")}
    for variable, value in os.environ.items():
        name = variable.upper()
        if name.startswith(prefix) and name not in known:
            others = map(_names_of, map(pkgutil.resolve_name, model.models))
            known |= {f"{prefix}{one}".upper() for names in others for one in names}
        is_unknown = name.startswith(prefix) and name not in known
        if is_unknown and not _is_of_kubernetes(name.removeprefix(prefix), value):
            raise ConfigurationError(
                f"environment variable {variable} is not a setting{suggest(name, known, prefix)}"
            )
    return EnvSettingsSource(model)()


def _names_of(model: type[ProgramSettings]) -> set[str]:
    return set(map(name_of, model.model_fields))


def _is_of_kubernetes(name: str, value: str) -> bool:
    """Whether Kubernetes sets this variable, for a Service named like the program."""
    is_port = name == "PORT" or name.endswith("_PORT")  # tcp://10.0.0.1:4222; a number is a typo
    return bool(_OF_SERVICE.fullmatch(name) or (is_port and _URL.match(value)))


def _translate(
    first: ErrorDetails,
    model: type[ProgramSettings],
    options: Collection[str],
    variables: Collection[str],
    files: Mapping[Path, Collection[str]],
) -> click.UsageError | ConfigurationError:
    """Return the error for a person: it names the option, variable or file to change."""
    reason = _reason_of(first, model)
    if not first["loc"]:  # settings that contradict each other
        return click.UsageError(reason)
    name = str(first["loc"][0])
    flag, variable = f"--{name.replace('_', '-')}", f"{prefix_of(model)}{name}".upper()
    if first["type"] == "missing":
        return click.UsageError(
            f"{flag} is required (or {variable}, or {name} in the --config file)"
        )
    if name not in options and name in variables:
        return ConfigurationError(f"{variable}: {reason}")
    file = next((path for path, content in files.items() if name in content), None)
    if name not in options and file:
        return ConfigurationError(f"{file}: {name}: {reason}")
    return click.UsageError(f"{flag}: {reason}")


def _reason_of(first: ErrorDetails, model: type[ProgramSettings]) -> str:
    match first["type"]:
        case "extra_forbidden":
            name = str(first["loc"][0]).replace("-", "_").lower()
            known = map(name_of, model.model_fields)
            return f"not a setting of {model.program}{suggest(name, known)}"
        case "byte_size" | "byte_size_unit":
            return f"{first['input']!r} is not a size such as 64KiB, 100MB or 2GiB"
        case "int_parsing" | "int_type" | "literal_error" | "enum" | "string_pattern_mismatch":
            return f"{first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        case "greater_than_equal" | "less_than_equal":
            bound, least = first["ctx"].get("ge"), first["ctx"].get("le")
            limit = f"at least {bound}" if bound is not None else f"at most {least}"
            return f"{first['input']!r} must be {limit}"
        case _:  # without the value, which may be a secret
            text = first["msg"].removeprefix("Value error, ")
            return text.replace("datetime.timedelta(0)", "0 seconds")
