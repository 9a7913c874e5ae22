"""What a user gave as options, read as what it means: flags, sizes, lengths of time, paths. Values only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broker.app.exits import ConfigurationError

__all__ = ["Given"]

_SUFFIXES = {"k": 1024, "m": 1024**2, "g": 1024**3}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Given:
    """Options by their names in small letters; every complaint is a `ConfigurationError` that names the option."""

    options: Mapping[str, str]

    @classmethod
    def among(cls, known: Iterable[str], options: Mapping[str, str]) -> "Given":
        """Take options in any case of letters; refuse one that is not known, without showing its value."""
        names = tuple(known)
        given = {key.lower(): value for key, value in options.items()}
        strange = sorted(set(given) - {name.lower() for name in names} - {"path"})  # load("…")
        if strange:
            raise ConfigurationError(
                f"jetstream has no option {strange[0]!r}; there are {', '.join(names)}"
            )
        return cls(given)

    def text(self, name: str, default: str = "") -> str:
        """Return what was given, without white space around it."""
        return self.options.get(name.lower(), default).strip()

    def words(self, name: str, default: str = "") -> tuple[str, ...]:
        """Return what stands between commas."""
        return tuple(word.strip() for word in self.text(name, default).split(",") if word.strip())

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        text = self.text(name, str(default)).lower()
        if text not in {"true", "false"}:
            raise ConfigurationError(f"{name} {text!r} is neither true nor false")
        return text == "true"

    def choice(self, name: str, *choices: str) -> str:
        """Return one of the choices, the first by default."""
        text = self.text(name, choices[0]).lower()
        if text not in choices:
            raise ConfigurationError(f"{name} {text!r} is not one of {', '.join(choices)}")
        return text

    def size(self, name: str) -> int | None:
        """Return a positive number, in which k, m and g count 1024, 1024² and 1024³; None when not given."""
        text = self.text(name).lower()
        if not text:
            return None
        number, unit = (text[:-1], _SUFFIXES[text[-1]]) if text[-1] in _SUFFIXES else (text, 1)
        if not (number.isascii() and number.isdigit() and int(number) > 0):
            raise ConfigurationError(
                f"{name} {text!r} is not a positive number (k, m, g may follow)"
            )
        return int(number) * unit

    def length(self, name: str, default: timedelta) -> timedelta:
        """Return a length of time such as `15m`."""
        if not (text := self.text(name)):
            return default
        from broker.app.durations import (
            parse_duration,  # it brings pydantic, which few workers need
        )

        try:
            return parse_duration(text)
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from None

    def time(self, name: str) -> datetime | None:
        """Return a moment: milliseconds since 1970 as in Spark's Kafka source, or ISO 8601, UTC unless it says otherwise."""
        text = self.text(name)
        if not text:
            return None
        try:
            if text.isdigit():
                return _EPOCH + timedelta(milliseconds=int(text))
            moment = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            raise ConfigurationError(
                f"{name} {text!r} is neither milliseconds since 1970 nor a time such as 2026-11-20T12:00:00Z"
            ) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def path(self, name: str) -> Path | None:
        """Return the path of a file."""
        text = self.text(name)
        return Path(text) if text else None
