"""Settings of a program: declared once as a model, read from options, environment and TOML files, in that order.

The click options are made from the same fields (`command_line`), so that option, variable, key, default and help text
can never disagree.
"""

import json
import os
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
_LIKE = 0.65  # of 1: so much alike are a word and what it may be meant to be
_SEE_HELP = "; see --help for those there are"
_SECRETS = {"nkey_seed", "password"}
_URL = re.compile(r"(tcp|udp|sctp)://")


def split_texts(value: object) -> object:
    """Return the texts of one that has commas between them; anything else as it is."""
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


Many = Annotated[tuple[str, ...], BeforeValidator(split_texts)]
"""A setting of several texts: an option given several times, a list in TOML, commas in the environment."""


def _object(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(f"{value!r} is neither a table nor a JSON object") from None


Table = Annotated[dict[str, Any], BeforeValidator(_object)]
"""A setting that is a table of its own in TOML, and a JSON object in the environment; it is no option."""


def option(default: Any, metavar: str, description: str, **extra: Any) -> Any:
    """Return a field, `metavar` being what its option takes; a default of `...` makes it a required one."""
    return Field(default, description=description, json_schema_extra={"metavar": metavar, **extra})


def name_of(field: str) -> str:
    """Return the name of a setting, as it is written in a file: its field's, which ends in `_` if that is a word of Python."""
    return field.removesuffix("_")


class ProgramSettings(BaseSettings):
    """What every program can be told; each program's model adds its own fields and its `env_prefix`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=AliasGenerator(validation_alias=name_of),
        env_prefix_target="alias",
        env_ignore_empty=True,
        enable_decoding=False,  # a variable is read as an option is, never as JSON
    )
    program: ClassVar[str]
    section: ClassVar[str] = "Logging"
    sections: ClassVar[Mapping[str, Collection[str]]] = {}
    """Titles under which the help shows the fields named, rather than under the `section` of their class."""
    credential_kinds: ClassVar[Sequence[str]] = ()
    """The kinds of credentials that the program takes, first the one that it needs; empty for all."""
    secrets: ClassVar[Sequence[str]] = ()
    """The settings that name files with secrets."""
    _files: Mapping[Path, Mapping[str, Any]] = PrivateAttr({})

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="How much this program says of itself: debug, info, warning or error."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Form of what it says: text, or json, an object a line."
    )

    @property
    def from_files(self) -> Mapping[str, Any]:
        """The settings that files give: --config wins over the one of the service manager."""
        return _merged(self._files)

    @property
    def secret_files(self) -> list[Path]:
        """The files that hold secrets, those of settings among them."""
        own = [path for path, content in self._files.items() if _has_secret(content)]
        return own + [path for name in self.secrets if (path := getattr(self, name))]

    def require_credential(self, *kinds: str) -> None:
        """Raise `ConfigurationError` where a file is a credential of another kind than these."""
        for path in filter(None, (*self._files, getattr(self, "nkey", None))):
            with suppress(OSError):  # whoever needs the file says so
                text = path.read_bytes().decode("utf-8", "replace")
                check_kind(path, text, self.program, kinds)


Model = TypeVar("Model", bound=ProgramSettings)


def load(model: type[Model], options: Mapping[str, Any], config: Path | None) -> Model:
    """Return the settings of a program: an option wins over the environment, that over the file, and that over a credential.

    `options` holds the options that were given, by field name; a credential is a file like the other, which the service manager
    hands over. Raises click.UsageError for a bad option and `ConfigurationError` for a bad variable, key or file.
    """
    named = {name_of(field): value for field, value in options.items()}
    variables = _variables(model)
    paths = (config, _credential_file(model.program))
    files = {path: _read(path, model) for path in paths if path is not None}
    content = _merged(files)
    try:
        settings = model(**{**content, **variables, **named})
    except ValidationError as error:
        raise _translate(error.errors()[0], model, named, variables, files) from None
    settings._files = files
    if model.credential_kinds:
        settings.require_credential(*model.credential_kinds)
    return settings


def did_you_mean(word: str, known: Iterable[str], form: str = "{}") -> str:
    """Return the end of a message on a word that is not known: those that it is like, if any."""
    shown = [form.format(one) for one in get_close_matches(word, [*known], cutoff=_LIKE)]
    return f"; did you mean {' or '.join(shown)}?" if shown else ""


def prefix_of(model: type[ProgramSettings]) -> str:
    """Return what the environment variables of a program begin with, e.g. `LOGBROKER_`."""
    return model.model_config.get("env_prefix", "")


def extra_of(field: FieldInfo) -> Mapping[str, Any]:
    """Return what `option` was told of a field beside its default and description."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _credential_file(program: str) -> Path | None:
    """Return the file of settings that the service manager hands over in secret, where it does (LoadCredential=)."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    with suppress(OSError):  # that's fine: a folder that we may not enter is another service's
        if folder and (path := Path(folder, f"{program}.toml")).exists():
            return path
    return None


def _read(path: Path, model: type[ProgramSettings]) -> dict[str, Any]:
    """Read a file; raises `ConfigurationError` for what cannot be read, is no TOML, or another's credential."""
    import tomllib  # most programs are started without a file

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


def _merged(files: Mapping[Path, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of files, of which the first wins."""
    return {key: value for file in reversed([*files.values()]) for key, value in file.items()}


def _variables(model: type[ProgramSettings]) -> dict[str, Any]:
    """Return the settings that the environment gives, as text; an empty variable gives none.

    Raises `ConfigurationError` for a variable that is no setting.
    """
    prefix = prefix_of(model)
    known = {f"{prefix}{name_of(field)}".upper() for field in (*model.model_fields, "config")}
    for variable, value in os.environ.items():
        name = variable.upper()
        is_unknown = name.startswith(prefix) and name not in known
        if is_unknown and not _is_of_service(name.removeprefix(prefix), value):
            meant = did_you_mean(name, known) or _SEE_HELP
            raise ConfigurationError(f"environment variable {variable} is not a setting{meant}")
    return EnvSettingsSource(model)()


def _is_of_service(name: str, value: str) -> bool:
    """Whether Kubernetes sets this variable, for a Service whose name begins as that of a program of ours."""
    is_port = name == "PORT" or name.endswith("_PORT")  # tcp://10.0.0.1:4222; a number is a slip
    return bool(_OF_SERVICE.fullmatch(name) or (is_port and _URL.match(value)))


def _translate(
    first: ErrorDetails,
    model: type[ProgramSettings],
    options: Collection[str],
    variables: Collection[str],
    files: Mapping[Path, Collection[str]],
) -> click.UsageError | ConfigurationError:
    """Return the error for a person: it names the place to mend, and what contradicts another setting both of them."""
    reason = _reason(first, model)
    if not first["loc"]:
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


def _reason(first: ErrorDetails, model: type[ProgramSettings]) -> str:
    match first["type"]:
        case "extra_forbidden":
            name = str(first["loc"][0]).replace("-", "_").lower()
            meant = did_you_mean(name, map(name_of, model.model_fields)) or _SEE_HELP
            return f"not a setting of {model.program}{meant}"
        case "int_parsing" | "int_type" | "literal_error" | "enum" | "string_pattern_mismatch":
            return f"{first['input']!r}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        case _:  # without the value, which may be a secret
            return first["msg"].removeprefix("Value error, ")
