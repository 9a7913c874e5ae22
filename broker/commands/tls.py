"""`logbroker tls`: an authority of one's own, and the certificates that it signs."""

import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click

from broker.app import program
from broker.app.exits import OperatorError
from broker.app.groups import PlainGroup
from broker.app.options import given, settings_options
from broker.auth.certificates import Pki, ends_of, read_authority
from broker.commands.shared import length
from broker.server.tls import TLS_FOLDER
from broker.settings import BrokerSettings

__all__ = ["tls"]

_FIELDS = frozenset({"store_dir", "log_level", "log_format"})
_HERE = ("localhost", "127.0.0.1", "::1")


@click.group(cls=PlainGroup)
def tls() -> None:
    """Make the certificates of a broker, signed by an authority of one's own.

    They are in DIR/tls. A broker that finds a certificate there talks TLS 1.3 and nothing else; one that
    runs takes new ones within some seconds, without a restart.
    """


@tls.command()
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name or address by which clients reach this broker; this machine's own are added.",
)
@click.option(
    "--authority",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Authority that another broker made (its DIR/tls/authority.pem), for a cluster.",
)
@click.option(
    "--authority-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key of --authority; it is used and not kept here.",
)
@click.option(
    "--elsewhere",
    is_flag=True,
    help="For a broker on another machine: this one's own names are left out.",
)
@settings_options(BrokerSettings, _FIELDS)
def init(
    names: Sequence[str],
    authority: Path | None,
    authority_key: Path | None,
    elsewhere: bool,
    **options: Any,
) -> None:
    """Make an authority (or take --authority), and a certificate for this broker."""
    pki = _pki(options)
    if pki.is_there:
        raise OperatorError(f"{pki.broker} is there already; `logbroker tls renew` makes a new one")
    if elsewhere and not names:
        raise click.UsageError("--elsewhere goes with --name: how clients reach that broker")
    wanted = _checked((*names, *(_HERE if elsewhere else _own_names())))
    now = _now()
    if authority and authority_key:
        signer = read_authority(authority, authority_key)
        pki.adopt(signer)
    elif authority or authority_key:
        raise click.UsageError("--authority and --authority-key come together")
    elif pki.authority.exists() and pki.authority_key.exists():
        signer = pki.read_authority()  # made by an init that came no further
    else:
        signer = pki.found(f"logship authority of {socket.gethostname()}", now)
    pki.sign(signer, wanted, now)
    click.echo(f"TLS is on from the next start; the certificate is for {', '.join(wanted)}")
    click.echo(f"clients get {pki.authority} and name it with --tls-ca")


@tls.command()
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="New names in place of those before."
)
@click.option(
    "--authority-key",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key of the authority, where it is not kept in DIR/tls.",
)
@click.option(
    "--elsewhere",
    is_flag=True,
    help="For a broker on another machine: with --name this one's own names are left out.",
)
@click.option(
    "--within",
    metavar="TIME",
    callback=length,
    help="Only where the certificate ends within that time, or lacks a --name.",
)
@settings_options(BrokerSettings, _FIELDS)
def renew(
    names: Sequence[str],
    authority_key: Path | None,
    elsewhere: bool,
    within: timedelta | None,
    **options: Any,
) -> None:
    """Sign this broker's certificate anew; one that runs takes it over by itself."""
    pki = _pki(options)
    own = _HERE if elsewhere else _own_names()
    present = pki.names()
    wanted = _checked((*names, *own)) if names else present
    (end,) = ends_of([pki.broker])
    is_new = within is None or end.not_after - _now() < within or not set(names) <= set(present)
    if is_new:
        pki.sign(pki.read_authority(authority_key), wanted, _now())
        (end,) = ends_of([pki.broker])
    done = "signed anew" if is_new else "not renewed"
    click.echo(f"{done}: {end.path} is for {', '.join(end.names)} until {end.not_after:%Y-%m-%d}")


def _pki(options: dict[str, Any]) -> Pki:
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    if settings.store_dir is None:
        raise click.UsageError(
            "--store-dir is required (or LOGBROKER_STORE_DIR, or store_dir in the --config file)"
        )
    pki = Pki(settings.store_dir.absolute() / TLS_FOLDER)
    try:
        next(pki.folder.iterdir(), None)
    except FileNotFoundError:
        pass  # that's fine: none was made yet
    except OSError as error:
        raise OperatorError(
            f"cannot read {pki.folder}: {error.strerror}; run this as the broker's user, or check --store-dir"
        ) from None
    return pki


def _own_names() -> tuple[str, ...]:
    return (socket.getfqdn(), socket.gethostname(), *_HERE)


def _checked(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if not name or not name.isascii() or any(sign.isspace() or sign in "/:" for sign in name):
            try:
                ip_address(name)
            except ValueError:
                raise click.UsageError(
                    f"{name!r} is neither a host's name (in ASCII) nor an address"
                ) from None
    return tuple(dict.fromkeys(names))


def _now() -> datetime:
    return datetime.fromtimestamp(time.time_ns() // 1_000_000_000, UTC)
