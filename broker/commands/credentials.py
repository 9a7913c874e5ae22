"""`logbroker credentials`: who gets in at a broker. Changes the credential store, then has a running broker take it."""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TextIO

import click

from broker.app.command_line import YES, PlainGroup, ask
from broker.app.exits import ConfigurationError, OperatorError
from broker.app.table import aligned
from broker.app.units import format_duration
from broker.auth.listing import HEAD, cells, connections_at, rows
from broker.auth.store import CredentialKind, CredentialStore, Holder, parse_store, summary_of
from broker.auth.store_file import load_credentials
from broker.commands.credential_change import (
    NAMES,
    OUTPUT,
    CredentialChange,
    Seeds,
    holders_of,
    new_keys,
)
from broker.commands.shared import JSON, length, partitions, store_of, this_second, with_settings
from broker.server.state_file import read_state
from broker.settings import BrokerSettings

__all__ = ["credentials"]

_LOCAL = frozenset({"store_dir", "log_level", "log_format"})
_FIELDS = _LOCAL | {"server"}
_ALL = click.option("--all", "everybody", is_flag=True, help="All of this kind.")
_PARTITIONS = click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="N",
    callback=partitions,
    help="Of a receiver: its partitions, as 3 or 0,3,5, or all; default of a new one: the one that is its name.",
)


@click.group(cls=PlainGroup)
def credentials() -> None:
    """Give hosts, receivers, admins and monitors credentials, and revoke them.

    The credential store is DIR/credentials.json; it holds no secret. A broker that runs on DIR takes every change at
    once and disconnects nobody but whom it concerns. Before the first credential everybody on this machine gets in.
    """


@credentials.command()
@NAMES
@_PARTITIONS
@OUTPUT
@with_settings(_FIELDS)
def add(
    settings: BrokerSettings,
    kind: str,
    names: Sequence[str],
    listed: Iterable[str] | None,
    partitions: tuple[int, ...] | None,
    output: str,
    force: bool,
) -> None:
    """Give someone new a credential: `add host web01`, `add receiver 3`, `add admin`, `add monitor grafana`."""
    holders = holders_of(kind, names, listed)
    change = CredentialChange(settings, output, force)
    change.check_output(len(holders))
    _check_kind(kind, partitions)
    shares = [_share(holder, partitions) for holder in holders]

    def added(store: CredentialStore) -> tuple[CredentialStore, Seeds]:
        seeds, keys = new_keys(holders)
        new = [(one, keys[one], share) for one, share in zip(holders, shares, strict=True)]
        return store.added(new, this_second()), seeds

    before = change.make(added)
    if not before.secured:
        change.say(
            "from now on nobody gets in without a credential; clients that came without one are disconnected"
        )
    change.tell()


def _check_kind(kind: str, partitions: tuple[int, ...] | None) -> None:
    if partitions is not None and kind != CredentialKind.RECEIVER.value:
        raise click.UsageError(f"--partition is for receivers; a {kind} has none")


def _share(holder: Holder, partitions: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the partitions of a new receiver, none for all of them and for what is no receiver."""
    if holder.kind is not CredentialKind.RECEIVER or partitions is not None:
        return partitions or ()
    if holder.name == "all":
        return ()
    if not (holder.name.isascii() and holder.name.isdigit()):
        raise click.UsageError(
            f"say which partitions {holder} gets: --partition 3, --partition 0,3,5 or --partition all"
        )
    return (int(holder.name),)


@credentials.command()
@NAMES
@_ALL
@click.option(
    "--grace",
    default="1d",
    show_default=True,
    metavar="TIME",
    callback=length,
    help="How long the old secret is accepted as well; 0 ends it now.",
)
@_PARTITIONS
@OUTPUT
@with_settings(_FIELDS)
def rotate(
    settings: BrokerSettings,
    kind: str,
    names: Sequence[str],
    listed: Iterable[str] | None,
    everybody: bool,
    grace: timedelta,
    partitions: tuple[int, ...] | None,
    output: str,
    force: bool,
) -> None:
    """Make new secrets; the old ones are accepted for --grace, so that nobody is cut off meanwhile.

    --partition gives a receiver other partitions, at once and for the old secret as well.
    """
    named = holders_of(kind, names, listed, everybody=everybody)
    change = CredentialChange(settings, output, force)
    _check_kind(kind, partitions)

    def rotated(store: CredentialStore) -> tuple[CredentialStore, Seeds]:
        holders = named or _all_of(store, kind)
        change.check_output(len(holders))
        store.found(holders)
        seeds, keys = new_keys(holders)
        return store.rotated(keys, this_second(), grace, partitions), seeds

    change.make(rotated)
    left = f"is accepted for {format_duration(grace)} more" if grace else "gets nobody in any more"
    change.say(f"the old secret {left}")
    change.tell()


@credentials.command()
@NAMES
@_ALL
@click.option(
    "--open-again",
    is_flag=True,
    help="With the last one: let in everybody on this machine without a credential again.",
)
@YES
@with_settings(_LOCAL)
def revoke(
    settings: BrokerSettings,
    kind: str,
    names: Sequence[str],
    listed: Iterable[str] | None,
    everybody: bool,
    open_again: bool,
    yes: bool,
) -> None:
    """Revoke credentials; whoever uses one is disconnected at once, and nobody else."""
    named = holders_of(kind, names, listed, everybody=everybody)
    change = CredentialChange(settings)
    if everybody and not yes:
        ask(f"Revoke the credential of every {kind}?")
    if open_again and not yes:
        ask("Let in everybody on this machine without a credential?")

    def revoked(store: CredentialStore) -> tuple[CredentialStore, Seeds]:
        left = store.revoked(named or _all_of(store, kind))
        return (left.opened() if open_again else left), {}

    before = change.make(revoked)
    left = len(change.after.credentials)
    gone = len(before.credentials) - left
    change.say(f"{gone} credential{'' if gone == 1 else 's'} revoked; {left} left")
    if not left:
        change.say(
            "everybody on this machine gets in without a credential"
            if open_again
            else "nobody gets in now; add a credential (or revoke with --open-again)"
        )
    change.tell()


@credentials.command(name="import")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option("--force", is_flag=True, help="Import it although it is not newer.")
@YES
@with_settings(_LOCAL)
def import_store(settings: BrokerSettings, file: TextIO, force: bool, yes: bool) -> None:
    """Take over the credentials of another broker of a cluster: its credentials.json, or - for standard input.

    Each broker of a cluster has a credential store of its own; change one of them, and import that into the others.
    """
    change = CredentialChange(settings)
    try:
        theirs = parse_store(file.read())
    except ValueError as error:  # InvalidStore, and what is not UTF-8
        raise ConfigurationError(f"{file.name} {error}") from None

    def taken(store: CredentialStore) -> tuple[CredentialStore, Seeds]:
        new = store.succeeded_by(theirs, force=force)
        kept = {one.holder for one in new.credentials}
        gone = [one.holder for one in store.credentials if one.holder not in kept]
        change.say(f"{len(kept)} credentials, {len(gone)} of this broker revoked")
        if gone and not yes:
            ask(f"Revoke {summary_of(gone)}?")
        return new, {}

    change.make(taken)
    change.tell()


@credentials.command(name="list")
@JSON
@with_settings(_LOCAL)
def list_all(settings: BrokerSettings, as_json: bool) -> None:
    """Show who has a credential, since when, and how many connections use it."""
    folder = store_of(settings)
    if not folder.is_dir():
        raise OperatorError(f"there is no directory {folder}; check --store-dir")
    store = load_credentials(folder)
    found = rows(store, this_second(), connections_at(read_state(folder).get("http")))
    if as_json:
        click.echo(json.dumps({"secured": store.secured, "credentials": found}, indent=2))
    elif found:
        click.echo(aligned(HEAD, cells(found), left=range(len(HEAD))))
    else:
        click.echo(
            "nobody has a credential, and nobody gets in"
            if store.secured
            else "no credentials: everybody on this machine gets in"
        )


def _all_of(store: CredentialStore, kind: str) -> list[Holder]:
    return [one.holder for one in store.credentials if one.kind is CredentialKind(kind)]
