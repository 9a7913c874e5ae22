"""How a program authenticates at the broker, and how it secures the connection. No I/O.

It never shows a secret. `credentials` reads the files at each connect.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_PREFIX = re.compile(r"([^\s.*>]+(\.[^\s.*>]+)*)?")


@dataclass(frozen=True, slots=True)
class Access:
    """At most one of `creds`, `nkey`, `nkey_seed` and `user`, and the settings of TLS.

    `tls_name` is the name in the server's certificate, if it is not the host of the address. The
    prefixes of answers and of the JetStream API are for credentials that do not name them.
    """

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
    inbox_prefix: str = ""
    api_prefix: str = ""

    @property
    def wants_tls(self) -> bool:
        """Whether TLS is required, whatever the scheme of the address."""
        return self.tls_first or any((self.tls_ca, self.tls_cert, self.tls_key, self.tls_ca_pem))

    def __str__(self) -> str:
        """Name the means of authentication for a message, without a secret."""
        means = (
            (self.creds, f"the credentials of {self.creds} (--creds)"),
            (self.nkey, f"the key of {self.nkey} (--nkey)"),
            (self.nkey_seed, "the key of its settings (nkey_seed)"),
            (self.user, f"user {self.user!r} (--user, --password)"),
            (self.tls_cert, f"the certificate {self.tls_cert} (--tls-cert)"),
        )
        nothing = "a client without --creds, --nkey or --user"
        return next((text for given, text in means if given), nothing)


def check_prefix(prefix: str) -> str:
    """Return a prefix of subjects, which may be empty; raises ValueError."""
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"{prefix!r} is not a prefix of subjects, such as JS.hub.API")
    return prefix


def check_servers(servers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the addresses, each of them alone; raises ValueError without showing a password.

    A text may hold several addresses with commas between them; `nats://` may be missing.
    """
    each = tuple(part.strip() for server in servers for part in server.split(","))
    for server in each:
        try:
            parts = urlsplit(server if "://" in server else f"nats://{server}")
            is_one = bool(parts.hostname) and parts.port != 0 and parts.path in {"", "/"}
        except ValueError:
            is_one = False
        if not is_one or parts.scheme not in {"nats", "tls"}:
            shown = server.rpartition("@")[2]  # a password may look like the scheme
            raise ValueError(f"{shown!r} is not the address of a NATS server: nats://host:port")
    return each


def without_password(address: str) -> str:
    """Return an address without the user and the password in it."""
    scheme, separator, rest = address.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"
