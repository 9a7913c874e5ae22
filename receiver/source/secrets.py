"""Secrets that options only name: read where a query is planned, so that neither Spark's plans nor its errors show them."""

import re
from collections.abc import Mapping
from pathlib import Path

from broker.app.exits import ConfigurationError

__all__ = ["SECRETS", "with_secrets"]

SECRETS = ("passwordFile", "tokenFile")
_ADDRESS = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<rest>[^@]+)")
_PLAIN = re.compile(r"[^\s/@:?#%\[\]]+")  # what stands in an address as it is


def with_secrets(options: Mapping[str, str], servers: str) -> dict[str, str]:
    """Return the options with what their files hold in place of the names of these; `servers` is the default address.

    Of a file the first line counts. Raises `ConfigurationError`, which shows no secret.
    """
    given = {key.lower(): value for key, value in options.items()}
    password, token = (given.pop(name.lower(), "").strip() for name in SECRETS)
    if password and given.get("password"):
        raise ConfigurationError("password and passwordFile are two ways; give one of them")
    if token and given.get("user"):
        raise ConfigurationError("user and tokenFile are two ways to say who this is")
    if password:
        given["password"] = _first_line(password, "passwordFile")
    if token:
        given["servers"] = _addressed(
            given.get("servers", servers), _first_line(token, "tokenFile")
        )
    return given


def _first_line(path: str, option: str) -> str:
    try:
        with Path(path).open(encoding="utf-8") as file:
            line = file.readline().rstrip("\r\n")
    except OSError as error:
        raise ConfigurationError(f"{option}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{option}: {path} holds no text") from None
    if not line:
        raise ConfigurationError(f"{option}: the first line of {path} is empty")
    return line


def _addressed(servers: str, token: str) -> str:
    if not _PLAIN.fullmatch(token):
        raise ConfigurationError("tokenFile: a token with such signs cannot stand in an address")
    found = [_ADDRESS.fullmatch(server.strip()) for server in servers.split(",") if server.strip()]
    if None in found:
        raise ConfigurationError("tokenFile: an address in servers says already who this is")
    return ",".join(f"{it['scheme'] or 'nats'}://{token}@{it['rest']}" for it in found if it)
