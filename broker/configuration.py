"""Settings of a program: declared once as a model, read from options, environment and a TOML file, in that order.

The click options are made from the same fields (`options.py`), so that option, variable, key, default and help text
can never disagree.
"""

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import click
from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from broker.exits import ConfigurationError

__all__ = ["Many", "ProgramSettings", "load", "name_of"]


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


Many = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A setting of several texts: an option given several times, a list in TOML, commas in the environment."""


class ProgramSettings(BaseSettings):
    """What every program can be told; each program's model adds its own fields and its `env_prefix`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
    )
    program: ClassVar[str]

    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = Field(
        "info", description="How much this program says of itself: debug, info, warning or error."
    )
    log_format: Annotated[str, Field(pattern="^(text|json)$")] = Field(
        "text", description="Form of what it says: text, or json, an object a line."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return what it is made from, and nothing else: `load` has read the environment and the file."""
        return (init_settings,)


Model = TypeVar("Model", bound=ProgramSettings)


def name_of(field: str) -> str:
    """Return the name of a setting, as it is written in a file: its field's, which ends in `_` if that is a word of Python."""
    return field.removesuffix("_")


def load(model: type[Model], options: Mapping[str, Any], config: Path | None) -> Model:
    """Return the settings of a program: an option wins over the environment, and that over the file.

    `options` holds the options that were given, by field name. Raises click.UsageError for a bad option and
    `ConfigurationError` for a bad variable, key or file.
    """
    prefix = model.model_config.get("env_prefix", "")
    fields = {name_of(field): field for field in model.model_fields}
    variables = _variables(prefix, fields)
    keys = {} if config is None else _keys(config, fields)
    try:
        return model(**{**keys, **variables, **options})
    except ValidationError as error:
        raise _translate(error, options, prefix, config) from None


def _variables(prefix: str, fields: Mapping[str, str]) -> dict[str, str]:
    known = {f"{prefix}{name}".upper(): field for name, field in fields.items()}
    found = {}
    for variable, value in os.environ.items():
        name = variable.upper()
        if not name.startswith(prefix.upper()) or name == f"{prefix}config".upper():
            continue
        if name not in known:
            raise ConfigurationError(
                f"environment variable {variable} is not a setting{_suggest(name, known)}"
            )
        if value:
            found[known[name]] = value  # as an option would be, never as JSON
    return found


def _keys(config: Path, fields: Mapping[str, str]) -> dict[str, Any]:
    try:
        content = tomllib.loads(config.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {config}: {error.strerror}; check --config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{config} is not valid TOML: {error}") from None
    for key in content:
        if key not in fields:
            raise ConfigurationError(f"{config}: {key!r} is not a setting{_suggest(key, fields)}")
    return {fields[key]: value for key, value in content.items()}


def _suggest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else "; see --help for the settings there are"


def _translate(
    error: ValidationError, options: Mapping[str, Any], prefix: str, config: Path | None
) -> click.UsageError | ConfigurationError:
    first = error.errors()[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    reason = first["msg"].removeprefix("Value error, ")
    name = name_of(field)
    flag = f"--{name.replace('_', '-')}"
    variable = f"{prefix}{name}".upper()
    if first["type"] == "missing":
        return click.UsageError(
            f"{flag} is required (or {variable}, or {name} in the --config file)"
        )
    if field in options or not field:
        return click.UsageError(f"{flag}: {reason}" if field else reason)
    set_there = variable in {there.upper() for there, value in os.environ.items() if value}
    place = variable if set_there else f"{config}: {name}"
    return ConfigurationError(f"{place}: {reason}")
