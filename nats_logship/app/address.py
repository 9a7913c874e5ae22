"""An address to listen on, as people write it: `127.0.0.1:4222`, `[::1]:4222`, or only a port."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_LOOPBACK = "127.0.0.1"
_ANYWHERE = {"0.0.0.0", "::", ""}
_MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """A host (a name, or a number without brackets) and a port; 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:  # a name, perhaps one that begins with 127.
            return self.host == "localhost"

    def reached_at(self, port: int) -> "Address":
        """Return the address to connect to from this machine, for a listener that got `port`."""
        return Address(_LOOPBACK if self.host in _ANYWHERE else self.host, port)


def parse_address(value: object) -> Address:
    """Read an address; raises ValueError."""
    if isinstance(value, Address):
        return value
    text = str(value).strip()
    host, colon, port = text.rpartition(":")
    if not colon:
        host = _LOOPBACK
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not host:port; an IPv6 address goes in brackets")
    if not (port.isascii() and port.isdigit() and int(port) <= _MAX_PORT) or not host.isprintable():
        raise ValueError(f"{text!r} is not host:port, such as 127.0.0.1:4222")
    return Address(host or "0.0.0.0", int(port))


def _parse_optional(value: object) -> Address | None:
    return None if value in (None, "", "off") else parse_address(value)


Listen = Annotated[Address, BeforeValidator(parse_address), PlainSerializer(str)]
"""A setting that holds an address."""
OptionalListen = Annotated[Address | None, BeforeValidator(_parse_optional), PlainSerializer(str)]
"""A setting that holds an address; `off` or an empty text is none."""
