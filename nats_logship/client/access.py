"""How a program gets in at the broker: who it says it is, and how the line is secured. A value.

Opens no file and never shows a secret: what the files hold is read by `credentials`, at each connect.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_PREFIX = re.compile(r"([^\s.*>]+(\.[^\s.*>]+)*)?")


def check_prefix(prefix: str) -> str:
    """Return a prefix of subjects if it can be one, or nothing; raises ValueError."""
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"{prefix!r} is no prefix of subjects: give tokens with dots between them")
    return prefix


@dataclass(frozen=True, slots=True)
class Access:
    """The means of getting in: at most one of `creds`, `nkey`, `nkey_seed` and `user`; paths of files, none of them read yet."""

    creds: Path | None = None
    nkey: Path | None = None
    nkey_seed: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca_pem: str = ""
    tls_first: bool = False
    tls_name: str = ""
    """The name that the server's certificate is to have, where it is not the host of the address."""
    inbox_prefix: str = ""
    api_prefix: str = ""
    """The prefixes of answers and of the JetStream API, where the credential file does not say them."""

    @property
    def wants_tls(self) -> bool:
        """Whether nothing may be sent in the clear, whatever the scheme of the address."""
        return self.tls_first or any((self.tls_ca, self.tls_cert, self.tls_key, self.tls_ca_pem))

    def __str__(self) -> str:
        """Name what we come with, for messages to a person; never a secret."""
        means = (
            (self.creds, f"the credentials of {self.creds} (--creds)"),
            (self.nkey, f"the key of {self.nkey} (--nkey)"),
            (self.nkey_seed, "the key of its settings (nkey_seed)"),
            (self.user, f"user {self.user!r} (--user, --password)"),
            (self.tls_cert, f"the certificate {self.tls_cert} (--tls-cert)"),
        )
        nothing = "a client without --creds, --nkey or --user"
        return next((words for given, words in means if given), nothing)


def check_servers(servers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the addresses if a client could try them all; raise ValueError otherwise.

    One text may hold several, with commas between them, as NATS clients take it. An address without a scheme (`broker1:4222`) is a NATS one. A password in it is never repeated in the message.
    """
    each = tuple(part.strip() for server in servers for part in server.split(","))
    for server in each:
        try:
            parts = urlsplit(server if "://" in server else f"nats://{server}")
            is_one = bool(parts.hostname) and parts.port != 0 and parts.path in {"", "/"}
        except ValueError:
            is_one = False
        if not is_one or parts.scheme not in {"nats", "tls"}:
            shown = server.rpartition("@")[2]
            raise ValueError(f"{shown!r} is no address of a NATS server; write nats://host:port")
    return each


def public(address: str) -> str:
    """Return an address without the name and the password that may be in it."""
    scheme, separator, rest = address.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
