"""`logbroker credentials`: add, revoke and list credentials in the broker's credential store.

A running broker applies each change at once.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from broker.auth.certificates import Pki
from broker.auth.credentials import CredentialError, CredentialKind, CredentialStore, Holder
from broker.auth.files import CredentialFile, change_credentials, load_credentials
from broker.commands.shared import (
    JSON,
    find_store,
    now,
    option,
    parse_partitions,
    print_json,
    run_on_broker,
    show,
    with_settings,
)
from broker.inspect.servers import collect_credentials
from broker.report import CredentialsReport
from broker.server.requests import report_credentials
from broker.server.store import has_run, is_locked, read_state, wait_for_credentials
from broker.settings import STATUS_FIELDS, STORE_FIELDS, BrokerSettings
from nats_logship.app.command_line import YES_OPTION, SectionedGroup, confirm
from nats_logship.app.exits import OperatorError
from nats_logship.app.files import report_errors, write_atomic
from nats_logship.app.text import format_names, printable
from nats_logship.client.nkey import new_seed, user_key

_STDOUT = "-"
_KIND = click.argument("kind", type=click.Choice([kind.value for kind in CredentialKind]))
_NAMES = click.argument("names", nargs=-1, metavar="[NAME]...")


@click.group(cls=SectionedGroup)
def credentials() -> None:
    """Add, revoke and list credentials of hosts, receivers, admins and monitors.

    The credential store is DIR/credentials.json; it holds no secret. A broker that runs on DIR
    applies each change at once and disconnects only the clients that it concerns. A broker without
    any credential accepts everybody on its own machine.
    """


@credentials.command()
@_KIND
@_NAMES
@option(
    "--partition",
    "N",
    "Partitions of a receiver: 3, or 0,3,5, or all.  [default: its name]",
    several="partitions",
    callback=parse_partitions,
)
@option(
    "--output",
    "FILE",
    "File for the secret, a directory, or - for standard output.  [default: KIND-NAME.toml]",
    default="",
)
@click.option("--force", is_flag=True, help="Replace existing credentials and files.")
@YES_OPTION
@JSON
@with_settings(STORE_FIELDS | {"server"})
def add(
    settings: BrokerSettings,
    kind: str,
    names: Sequence[str],
    partitions: tuple[int, ...] | None,
    output: str,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Add a credential, such as `add host web01`, `add receiver 3`, `add monitor grafana`.

    With --force an existing credential is replaced; the old secret is no longer accepted. On a
    broker that runs without credentials the first one locks out all its clients; it asks first.
    """
    if output == _STDOUT and (as_json or len(set(names)) > 1):
        raise click.UsageError(
            "--output - writes one credential and no JSON; use --output DIR/ for several"
        )
    holders = _find_holders(kind, names, partitions)
    if not yes:
        _confirm_the_first(find_store(settings))
    seeds = {holder: new_seed() for holder in holders}
    shares = {holder: _find_share(holder, partitions) for holder in holders}
    new = [(one, user_key(seeds[one]).public, shares[one]) for one in holders]
    written: dict[Path, CredentialFile] = {}

    def add_to(store: CredentialStore) -> CredentialStore:
        known = [one.holder for one in store.credentials if force and one.holder in seeds]
        left = store.revoke(known) if known else store
        after = left.add(new, now().replace(microsecond=0))
        written.update(_write_files(_make_files(settings, after, seeds), output, force=force))
        return after

    to_stderr = as_json or output == _STDOUT
    after = _change(settings, add_to, err=to_stderr)
    for path, one in written.items():
        text = f"wrote the credential of {one.credential.holder} to {path}; copy it to that machine"
        click.echo(f"{text} and give it with {one.option}", err=to_stderr)
    if as_json:
        made = [one.model_dump(mode="json") for one in after.find(holders)]
        print_json({"credentials": made, "files": list(map(str, written))})


@credentials.command()
@_KIND
@_NAMES
@YES_OPTION
@JSON
@with_settings(STORE_FIELDS | STATUS_FIELDS)
def revoke(
    settings: BrokerSettings, kind: str, names: Sequence[str], yes: bool, as_json: bool
) -> None:
    """Revoke credentials and disconnect at once the clients that use them.

    With --store-dir, in that store, on the broker's machine. Without it, at all servers of the
    broker at --server, with the credential of an admin. Without the last credential the broker
    accepts nobody; it asks first.
    """
    holders = _find_holders(kind, names)
    if not yes:
        _confirm_the_last(settings, holders)
    if settings.store_dir is None:
        asked = [(holder.kind.value, holder.name) for holder in holders]
        collect = partial(collect_credentials, revoked=asked)
        reports = run_on_broker(settings, "credentials revoke", collect)
    else:
        _change(settings, lambda store: store.revoke(holders), err=as_json)
        reports = [report_credentials(find_store(settings), str(settings.store_dir))]
    for one in reports:
        left = f"{len(one.credentials) or 'none'} left"
        done = f"revoked {format_names(holders)}; {left}"
        if not one.credentials:
            done += ", so the broker accepts nobody"
        click.echo(printable(f"{one.name}: {one.error or done}"), err=as_json)
    if as_json:
        print_json([one.model_dump(mode="json") for one in reports])
    if any(one.error for one in reports):
        raise OperatorError(
            "not revoked at all servers, see above; `logbroker credentials list` shows what is left"
        )


@credentials.command(name="list")
@JSON
@with_settings(STORE_FIELDS | STATUS_FIELDS)
def list_all(settings: BrokerSettings, as_json: bool) -> None:
    """List the credentials, and since when each exists.

    With --store-dir, those of that store, on the broker's machine. Without it, those of the broker
    at --server, with the credential of an admin.
    """
    if settings.store_dir is None:
        found = _merge(run_on_broker(settings, "credentials list", collect_credentials))
    else:
        found = report_credentials(_require_folder(find_store(settings), "check --store-dir"))
    lines = []
    for row in found.credentials:
        own = ", ".join(map(str, row["partitions"])) or "all"
        share = f" of partitions {own}" if row["kind"] == CredentialKind.RECEIVER.value else ""
        lines.append(f"{row['kind']} {row['name']}{share}, since {row['since'][:16]}Z")
    if not found.secured:
        lines.append("no credentials: the broker accepts everybody on its own machine")
    show(found.model_dump(include={"secured", "credentials"}), *lines, as_json=as_json)


def _merge(reports: Sequence[CredentialsReport]) -> CredentialsReport:
    """Return the credentials that any server knows; print a note if the servers differ."""
    for silent in (one for one in reports if one.error):
        click.echo(f"note: {printable(f'{silent.name}: {silent.error}')}", err=True)
    reports = [one for one in reports if not one.error]
    if not reports:
        raise OperatorError("no server answered with its credentials, see above")
    found = {(row["kind"], row["name"]): row for one in reports for row in one.credentials}
    keys = [{row["nkey"] for row in report.credentials} for report in reports]
    if any(one != keys[0] for one in keys):
        names = ", ".join(report.name for report in reports)
        click.echo(
            f"note: credentials differ among {names}; copy credentials.json of one to the others",
            err=True,
        )
    secured = all(report.secured for report in reports)
    return CredentialsReport(name="", secured=secured, credentials=list(found.values()))


def _find_holders(
    kind: str, names: Sequence[str], partitions: tuple[int, ...] | None = None
) -> list[Holder]:
    """Return the holders that the arguments name; raises click.UsageError."""
    if not names and kind == CredentialKind.ADMIN.value:
        names = (kind,)  # the only admin needs no name
    if not names:
        raise click.UsageError(f"give the name of a {kind}, or several names")
    if partitions is not None and kind != CredentialKind.RECEIVER.value:
        raise click.UsageError(f"--partition is for receivers; a {kind} has none")
    return [Holder(CredentialKind(kind), name) for name in dict.fromkeys(names)]


def _find_share(holder: Holder, partitions: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the partitions of a new receiver; an empty tuple for all, and for other kinds."""
    if holder.kind is not CredentialKind.RECEIVER or partitions is not None or holder.name == "all":
        return partitions or ()
    if not (holder.name.isascii() and holder.name.isdigit()):
        raise click.UsageError(
            f"give the partitions of {holder}: --partition 3, --partition 0,3,5 or --partition all"
        )
    return (int(holder.name),)


def _confirm_the_first(folder: Path) -> None:
    """Ask before a broker that runs and accepts everybody gets its first credential."""
    if is_locked(folder) and not load_credentials(folder).is_secured:
        confirm(
            f"The broker of {folder} runs and accepts everybody. From this credential on it locks "
            "out all clients without one: shippers and receivers that run now too. Add it?"
        )


def _confirm_the_last(settings: BrokerSettings, holders: Sequence[Holder]) -> None:
    """Ask before a broker loses its last credential."""
    if settings.store_dir is None:
        reports = run_on_broker(settings, "credentials revoke", collect_credentials)
    else:
        reports = [report_credentials(find_store(settings), str(settings.store_dir))]
    revoked = {(holder.kind.value, holder.name) for holder in holders}
    for one in reports:
        if revoked == {(row["kind"], row["name"]) for row in one.credentials}:
            whom = format_names(holders)
            confirm(
                f"{one.name} has no other credential than {whom}. Without it the broker accepts "
                "nobody: it locks out all shippers, receivers and admins. Revoke it?"
            )
            return


def _change(
    settings: BrokerSettings, decide: Callable[[CredentialStore], CredentialStore], *, err: bool
) -> CredentialStore:
    """Change the store, wait until a running broker has applied it, and return the store.

    Raises `OperatorError`. Credential files are written before the store. If we die in between,
    there are files that no broker accepts yet; the same command again with --force repairs that.
    """
    advice = "check --store-dir, or create it for a new broker"
    folder = _require_folder(find_store(settings), advice)
    try:
        before, after = change_credentials(folder, decide)
    except CredentialError as error:
        raise OperatorError(f"{error}; `logbroker credentials list` shows all") from None
    click.echo(wait_for_credentials(folder, after.revision), err=err)
    if not before.is_secured and not has_run(folder):
        click.echo(
            f"no broker has run in {folder} yet: unless it is a new one, check --store-dir",
            err=True,
        )
    if not before.is_secured:
        click.echo(
            "from now on the broker accepts nobody without a credential; "
            "clients without one are disconnected",
            err=err,
        )
    return after


def _require_folder(folder: Path, advice: str) -> Path:
    """Return a directory that exists; raises `OperatorError`, with the advice."""
    with report_errors(folder, "open the directory"):
        exists = folder.is_dir()
    if not exists:
        raise OperatorError(f"there is no directory {folder}; {advice}")
    return folder


def _make_files(
    settings: BrokerSettings, after: CredentialStore, seeds: Mapping[Holder, str]
) -> list[CredentialFile]:
    """Return the credential files: each with the broker's address and authority, if any."""
    folder = find_store(settings)
    pki = Pki(folder)
    has_own = pki.broker.exists() and pki.authority.exists()
    authority = pki.read(pki.authority).decode("ascii") if has_own else ""
    running = read_state(folder).get("server")
    is_given = "server" in settings.model_fields_set or not isinstance(running, str)
    servers = settings.server if is_given else (str(running),)
    made = after.find(list(seeds))
    return [CredentialFile(one, seeds[one.holder], servers, authority) for one in made]


def _write_files(
    files: Sequence[CredentialFile], output: str, *, force: bool
) -> dict[Path, CredentialFile]:
    """Write the credential files, and return them by path; raises `OperatorError`."""
    if output == _STDOUT:
        click.echo(files[0].as_toml("FILE"), nl=False)
        sys.stdout.flush()  # fails if the reader of stdout is gone; then nothing is changed
        return {}
    folder, name = Path(output), ""
    is_file = output and len(files) == 1 and not output.endswith("/")
    if is_file and not folder.is_dir():
        folder, name = folder.parent, folder.name
    _require_folder(folder, "check --output, or create it")
    found = {folder / (name or one.name): one for one in files}
    if not force and (existing := [path for path in found if os.path.lexists(path)]):
        raise OperatorError(
            f"{existing[0]} exists already; --force replaces it, --output names another file"
        )
    for path, one in found.items():
        write_atomic(path, one.as_toml(path.name), 0o600)
    return found
