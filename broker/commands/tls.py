"""`logbroker tls`: make an authority, and sign the broker's certificate with it."""

import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

import click

from broker.auth.certificates import Pki, read_expiries
from broker.commands.shared import DURATION, JSON, find_store, now, option, show, with_settings
from broker.settings import STORE_FIELDS, BrokerSettings
from nats_logship.app.command_line import SectionedGroup
from nats_logship.app.exits import OperatorError
from nats_logship.app.files import report_errors

_CERTIFIED = option(
    "--name",
    "NAME",
    "Name or address by which clients reach the broker; repeatable.  [default: this machine's]",
    several="names",
)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_VALID_NAME = re.compile(r"[A-Za-z0-9._*-]+|[0-9A-Fa-f.:]+")


@click.group(cls=SectionedGroup)
def tls() -> None:
    """Make certificates for the broker, signed by an authority of its own.

    They are in DIR/tls. A broker that finds a certificate there accepts only TLS 1.3. A running
    broker finds the first certificate at a reload, and restarts its nats-server; it takes over each
    later one within some seconds.
    """


@tls.command()
@_CERTIFIED
@JSON
@with_settings(STORE_FIELDS)
def init(settings: BrokerSettings, names: Sequence[str], as_json: bool) -> None:
    """Make a certificate for this broker, and the authority that signs it.

    For each further broker of a cluster, first copy authority.pem and authority.key of the first
    broker into its DIR/tls.
    """
    pki = _open_pki(settings)
    if pki.broker.exists():
        raise OperatorError(f"{pki.broker} exists already; `logbroker tls renew` replaces it")
    wanted = _complete_names(names)
    if pki.authority.exists() or pki.authority_key.exists():
        signer = pki.read_authority()
    else:
        signer = pki.create_authority(f"logship authority of {socket.gethostname()}", now())
    pki.sign(signer, wanted, now())
    click.echo(
        f"credential files that are made from now on contain {pki.authority}; to clients without "
        "one copy it, and give it with --tls-ca",
        err=as_json,
    )
    _show("the broker requires TLS from its next start or reload on", pki, as_json=as_json)


@tls.command()
@_CERTIFIED
@option(
    "--within",
    "DURATION",
    "Only if the certificate ends within this time, or lacks a --name.",
    type=DURATION,
)
@JSON
@with_settings(STORE_FIELDS)
def renew(
    settings: BrokerSettings, names: Sequence[str], within: timedelta | None, as_json: bool
) -> None:
    """Renew this broker's certificate; a running broker reloads it.

    --name replaces all names of the certificate.
    """
    pki = _open_pki(settings)
    present = pki.read_names()
    wanted = _complete_names(names) if names else present
    (end,) = read_expiries([pki.broker])
    is_due = within is None or end.not_after - now() < within
    if is_new := is_due or not set(names) <= set(present):
        pki.sign(pki.read_authority(), wanted, now())
    _show("signed again" if is_new else "not renewed", pki, as_json=as_json)


def _show(done: str, pki: Pki, *, as_json: bool) -> None:
    names, (end,) = pki.read_names(), read_expiries([pki.broker])
    document = {"done": done, "names": names, **end.model_dump(mode="json")}
    text = f"{done}: {end.path} is for {', '.join(names)} until {end.not_after:%Y-%m-%d}"
    show(document, text, as_json=as_json)


def _open_pki(settings: BrokerSettings) -> Pki:
    """Return the certificates of the store; raises `OperatorError` if they cannot be read."""
    pki = Pki(find_store(settings))
    with report_errors(pki.folder), suppress(FileNotFoundError):  # there are none yet
        next(pki.folder.iterdir(), None)
    return pki


def _complete_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a certificate, and those of the loopback; by default this machine's.

    Raises click.UsageError for an invalid one.
    """
    own = names or (socket.getfqdn(), socket.gethostname())
    found = tuple(dict.fromkeys((*own, *_LOOPBACK)))
    for name in found:
        if not _VALID_NAME.fullmatch(name):
            raise click.UsageError(f"{name!r} is neither a host name (in ASCII) nor an address")
    return found
