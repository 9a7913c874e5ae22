"""Finds host names that do not identify one machine."""

import re

_LOOPBACK = re.compile(
    r"(ip6-)?(localhost|loopback)[46]?(\.localdomain[46]?)?|127(\.[0-9]+){3}", re.IGNORECASE
)


def find_shared_name(host: str) -> str:
    """Return a warning if every machine has this name for itself, such as `localhost`."""
    if not _LOOPBACK.fullmatch(host):
        return ""
    return (
        f"host name {host} is not unique: shippers of two hosts with this name fence each other; "
        "give --host"
    )
