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
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from broker.exits import ConfigurationError

__all__ = ["Many", "ProgramSettings", "load"]


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


Many = Annotated[tuple[str, ...], BeforeValidator(_split)]
"""A setting of several texts: an option given several times, a list in TOML, commas in the environment."""


class ProgramSettings(BaseSettings):
    """What every program can be told; each program's model adds its own fields and its `env_prefix`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        enable_decoding=False,  # a variable is read as an option is, never as JSON
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
        """Return options, environment, file: the earlier wins."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


Model = TypeVar("Model", bound=ProgramSettings)


def load(model: type[Model], options: Mapping[str, Any], config: Path | None) -> Model:
    """Return the settings of a program.

    `options` holds the options that were given, by field name. Raises click.UsageError for a bad option and
    `ConfigurationError` for a bad variable, key or file.
    """
    prefix = model.model_config.get("env_prefix", "")
    _refuse_unknown_variables(prefix, model.model_fields)
    _refuse_bad_file(model, config)
    loaded = type(
        model.__name__, (model,), {"model_config": {**model.model_config, "toml_file": config}}
    )
    try:
        settings: Model = loaded(**options)
    except ValidationError as error:
        raise _translate(error, options, prefix, config) from None
    return settings


def _refuse_unknown_variables(prefix: str, fields: Iterable[str]) -> None:
    known = {f"{prefix}{name}".upper() for name in (*fields, "config")}
    for variable in os.environ:
        if variable.upper().startswith(prefix.upper()) and variable.upper() not in known:
            raise ConfigurationError(
                f"environment variable {variable} is not a setting{_suggest(variable.upper(), known)}"
            )


def _refuse_bad_file(model: type[ProgramSettings], config: Path | None) -> None:
    if config is None:
        return
    try:
        content = tomllib.loads(config.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {config}: {error.strerror}; check --config"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{config} is not valid TOML: {error}") from None
    for key in content:
        if key not in model.model_fields:
            raise ConfigurationError(
                f"{config}: {key!r} is not a setting{_suggest(key, model.model_fields)}"
            )


def _suggest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else "; see --help for the settings there are"


def _translate(
    error: ValidationError, options: Mapping[str, Any], prefix: str, config: Path | None
) -> click.UsageError | ConfigurationError:
    first = error.errors()[0]
    field = str(first["loc"][0]) if first["loc"] else ""
    reason = first["msg"].removeprefix("Value error, ")
    flag = f"--{field.replace('_', '-')}"
    variable = f"{prefix}{field}".upper()
    if first["type"] == "missing":
        return click.UsageError(
            f"{flag} is required (or {variable}, or {field} in the --config file)"
        )
    if field in options or not field:
        return click.UsageError(f"{flag}: {reason}" if field else reason)
    place = variable if variable in {name.upper() for name in os.environ} else f"{config}: {field}"
    return ConfigurationError(f"{place}: {reason}")
