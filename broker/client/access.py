"""How a program gets in at the broker: who it says it is, and how the line is secured. A value.

Opens no file and never shows a secret: what the files hold is read by `credentials`, at each connect.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["Access", "check_prefix"]

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
    tls_cert_pem: str = field(default="", repr=False)
    tls_first: bool = False
    tls_name: str = ""
    """The name that the server's certificate is to have, where it is not the host of the address."""
    inbox_prefix: str = ""
    """What the subjects begin with on which answers are heard; empty for what the program tries by itself."""
    api_prefix: str = ""
    """What the subjects of the JetStream API begin with; empty where the server's word on our rights tells."""

    @property
    def wants_tls(self) -> bool:
        """Whether nothing may be sent in the clear, whatever the scheme of the address."""
        return self.tls_first or any(
            (self.tls_ca, self.tls_cert, self.tls_key, self.tls_ca_pem, self.tls_cert_pem)
        )

    def absolute(self, folder: Path) -> "Access":
        """Return the same for another process: relative paths are of `folder`."""
        return replace(
            self,
            creds=self.creds and folder / self.creds,
            nkey=self.nkey and folder / self.nkey,
            tls_ca=self.tls_ca and folder / self.tls_ca,
            tls_cert=self.tls_cert and folder / self.tls_cert,
            tls_key=self.tls_key and folder / self.tls_key,
        )

    def __str__(self) -> str:
        """Name what we come with, for messages to a person; never a secret."""
        means = (
            (self.creds, f"the credentials of {self.creds} (--creds)"),
            (self.nkey, f"the key of {self.nkey} (--nkey)"),
            (self.nkey_seed, "the key of its settings (nkey_seed)"),
            (self.user, f"user {self.user!r} (--user, --password)"),
            (self.tls_cert, f"the certificate {self.tls_cert} (--tls-cert)"),
            (self.tls_cert_pem, "the certificate of its settings (tls_cert_pem)"),
        )
        nothing = "a client without --creds, --nkey or --user"
        return next((words for given, words in means if given), nothing)
