"""The file that an operator carries to a host, a receiver or a desk: settings that its program takes as they are.

Decides what stands in it; writes nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.granting.identity import Certificate, Identity, Kind
from broker.wire.subjects import inbox_of

__all__ = ["Carried", "file_name"]

_HINTS = {
    Kind.HOST: "logshipper --config {file} --file /var/log/app.log",
    Kind.RECEIVER: "logreceiver --config {file} --output /var/log/logship",
    Kind.ADMIN: "logbroker status --config {file}",
    Kind.SITE: "logbroker run --site-nkey {file} --site {name} --site-remote nats-leaf://HOST:7422 ...",
}


@dataclass(frozen=True, slots=True)
class Carried:
    """What one credential's bearer needs: `servers` may be unknown.

    `secret` are the settings that prove who it is, `authority` is what the broker's certificate is checked against (PEM).
    """

    identity: Identity
    servers: Sequence[str]
    secret: Mapping[str, str] = field(repr=False)
    authority: str = ""

    def settings(self) -> dict[str, Any]:
        """Return the settings for the program of this kind, by name."""
        return {
            **({"server": list(self.servers)} if self.servers else {}),
            **_own(self.identity),
            **({"tls_ca_pem": self.authority} if self.authority else {}),
            **self.secret,
        }

    def as_toml(self, file: str) -> str:
        """Return the text of a file of settings named `file`."""
        kind, name = self.identity.kind, self.identity.name
        lines = [
            f"# {kind.value} {name}: whoever has this file gets in as that, so nobody else may read it",
            f"# {self.hint(file)}",
            *(f"{key} = {_toml(value)}" for key, value in self.settings().items()),
        ]
        if isinstance(self.identity.proof, Certificate) and not self.secret:
            lines.append(
                f"# tls_cert and tls_key: a certificate for {json.dumps(self.identity.proof.subject)}, and its key"
            )
        return "\n".join(lines) + "\n"

    def as_json(self) -> str:
        """Return the same as an object in one line, with the kind and the name it is for."""
        head = {"kind": self.identity.kind.value, "name": self.identity.name}
        return json.dumps({**head, "settings": self.settings()}, ensure_ascii=False) + "\n"

    def hint(self, file: str) -> str:
        """Return how the file is used."""
        return _HINTS[self.identity.kind].format(file=file, name=self.identity.name)


def file_name(identity: Identity, ending: str) -> str:
    """Return what the file of a credential is called by default, e.g. `host-web01.toml`."""
    kind, name = identity.kind.value, identity.name
    return f"{kind}.{ending}" if name == kind else f"{kind}-{name}.{ending}"


def _is_certified(identity: Identity) -> bool:
    return isinstance(identity.proof, Certificate)


def _toml(value: Any) -> str:
    if (
        isinstance(value, str) and "\n" in value
    ):  # PEM, which has no signs that TOML reads otherwise
        return f'"""\n{value}"""'
    return json.dumps(value, ensure_ascii=False)


def _own(identity: Identity) -> dict[str, Any]:
    match identity.kind:
        case Kind.HOST:
            return {"host": identity.name}
        case Kind.RECEIVER:
            return {
                "partition": [str(number) for number in identity.partitions] or ["all"],
                # where answers are heard follows from a key or a user, and a certificate is not looked into
                **({"inbox_prefix": inbox_of(identity.name)} if _is_certified(identity) else {}),
            }
        case Kind.ADMIN | Kind.SITE:
            return {}
