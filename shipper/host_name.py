"""The host name of `--host`, itself or where it is, and names that do not identify one machine."""

import os
import re

from nats_logship.wire.subjects import InvalidHost, validate_host

_LOOPBACK = re.compile(
    r"(ip6-)?(localhost|loopback)[46]?(\.localdomain[46]?)?|127(\.[0-9]+){3}", re.IGNORECASE
)
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_MOST_BYTES = 4096  # of a file with a name


def read_host(value: str) -> str:
    """Return the host that a setting names: `web01`, `@/etc/nodename` or `$NODE_NAME`.

    A file has one line. Raises ValueError for what cannot be read, or is no valid name; empty stays
    empty.
    """
    if value.startswith("@"):
        return _validate(_read_line(value[1:]), f"in {value[1:]}: ")
    if not value.startswith("$"):
        return validate_host(value) if value else value
    if (named := _VARIABLE.fullmatch(value)) is None:
        raise ValueError(f"{value!r} is not a variable alone, as in $NODE_NAME")
    if not (host := os.environ.get(named[1], "").strip()):
        raise ValueError(f"the environment variable {named[1]} is not set, or empty")
    return _validate(host, f"in {value}: ")


def _validate(host: str, where: str) -> str:
    try:
        return validate_host(host)
    except InvalidHost as error:
        raise ValueError(f"{where}{error}") from None


def _read_line(path: str) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a path of any bytes
            text = file.read(_MOST_BYTES).decode().strip()
    except OSError as error:
        raise ValueError(
            f"cannot read {path or 'a file without a name'}: {error.strerror}"
        ) from None
    except ValueError:
        raise ValueError(f"{path} is not text in UTF-8") from None
    if not text:
        raise ValueError(f"{path} is empty; it must hold the name of this host")
    if "\n" in text:
        raise ValueError(f"{path} has more than one line; it must hold the name of this host alone")
    return text


def find_shared_name(host: str) -> str:
    """Return a warning if every machine has this name for itself, such as `localhost`."""
    if not _LOOPBACK.fullmatch(host):
        return ""
    return (
        f"host name {host} is not unique: shippers of two hosts with this name fence each other; "
        "give --host"
    )
