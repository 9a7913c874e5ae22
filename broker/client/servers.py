"""The addresses of the broker as a client is told them: URLs, checked before anything is sent."""

import re
from urllib.parse import urlsplit

__all__ = ["check_servers", "looks_like_server", "public"]

_SCHEMES = {"nats", "tls"}
_ADDRESS = re.compile(r"[a-z]+://.*|[^/]+:[0-9]{1,5}")


def check_servers(servers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the addresses if a client could try them all; raise ValueError otherwise.

    One text may hold several, with commas between them, as NATS clients take it. An address without a scheme (`broker1:4222`) is a NATS one. A password in it is never repeated in the message.
    """
    each = tuple(part.strip() for server in servers for part in server.split(","))
    if not any(each):
        raise ValueError("no address of a broker is given")
    for server in each:
        if reason := _objection(server):
            raise ValueError(f"{_shown(server)!r} {reason}; write nats://host:port")
    return each


def looks_like_server(word: str) -> bool:
    """Whether a word behind `--server URL` is meant as one more address: it has a scheme or a port."""
    return _ADDRESS.fullmatch(word) is not None


def public(address: str) -> str:
    """Return an address without the name and the password that may stand in it."""
    scheme, separator, rest = address.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _objection(server: str) -> str | None:
    try:
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        has_host = bool(parts.hostname) and parts.port != 0
        has_path = parts.path not in {"", "/"}
    except ValueError:
        return "is no address"
    if parts.scheme not in _SCHEMES or has_path:
        return "is no address of a NATS server"
    return None if has_host else "names no host"


def _shown(server: str) -> str:
    return server.rpartition("@")[2]
