"""`logbroker credentials`: who gets in at a broker. Changes the credential store, then has a running broker take it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from broker.app.command_line import SectionedGroup
from broker.app.exits import OperatorError
from broker.app.files import make_folder
from broker.app.table import show, table
from broker.app.untrusted import printable
from broker.auth.certificates import Pki
from broker.auth.files import (
    HEAD,
    CredentialFile,
    cells,
    held_credentials,
    write_files,
)
from broker.auth.store import (
    CredentialKind,
    CredentialStore,
    Holder,
    InvalidStore,
    summary_of,
)
from broker.client.nkey import new_seed, user_key
from broker.commands.shared import (
    JSON,
    asking,
    now,
    option,
    partition_list,
    print_json,
    store_of,
    with_settings,
)
from broker.inspect.ask import credentials_at
from broker.report import CredentialsReport
from broker.server.requests import report_of
from broker.server.store import await_credentials, read_state
from broker.settings import STATUS_FIELDS, STORE_FIELDS, BrokerSettings

Seeds = dict[Holder, str]
"""The secrets of a change, by who is to have them."""
Change = Callable[[CredentialStore], tuple[CredentialStore, Seeds]]
"""What becomes of a store."""

_STDOUT = "-"
_OPEN = "everybody on this machine gets in without a credential"
_KIND = click.argument("kind", type=click.Choice([kind.value for kind in CredentialKind]))
_NAMES = click.argument("names", nargs=-1, metavar="[NAME]...")


def _issues(command: Any) -> Any:
    """Return the command of this function, which makes secrets: whose, and where they go."""
    of_receivers = "Of a receiver: its partitions, as 3 or 0,3,5, or all; default: its name."
    where = (
        "File of the secret, a directory, or - for standard output; default: KIND-NAME.toml here."
    )
    for decorate in (
        with_settings(STORE_FIELDS | {"server"}),
        click.option("--force", is_flag=True, help="Replace credentials and files that are there."),
        option("--output", "FILE", where, default=""),
        option("--partition", "N", of_receivers, several="partitions", callback=partition_list),
        _NAMES,
        _KIND,
        credentials.command(),
    ):
        command = decorate(command)
    return command


@click.group(cls=SectionedGroup)
def credentials() -> None:
    """Give hosts, receivers, admins and monitors credentials, and revoke them.

    The credential store is DIR/credentials.json; it holds no secret. A broker that runs on DIR takes every change at
    once and disconnects nobody but whom it concerns. Before the first credential everybody on this machine gets in.
    """


@_issues
def add(
    settings: BrokerSettings,
    kind: str,
    names: Sequence[str],
    partitions: tuple[int, ...] | None,
    output: str,
    force: bool,
) -> None:
    """Give a credential: `add host web01`, `add receiver 3`, `add admin`, `add monitor grafana`.

    With --force whoever has one gets a new one in its place, and the old secret gets nobody in any more.
    """
    holders = _holders(kind, names, partitions, output)
    shares = [_share(holder, partitions) for holder in holders]

    def added(store: CredentialStore) -> tuple[CredentialStore, Seeds]:
        seeds, keys = _new_keys(holders)
        new = [(one, keys[one], share) for one, share in zip(holders, shares, strict=True)]
        known = [one.holder for one in store.credentials if force and one.holder in seeds]
        left = store.revoked(known) if known else store
        return left.added(new, now().replace(microsecond=0)), seeds

    before, _ = _change(settings, added, output, force=force)
    if not before.secured:
        click.echo(
            "from now on nobody gets in without a credential; clients that came without one are disconnected",
            err=output == _STDOUT,
        )


@credentials.command()
@_KIND
@_NAMES
@with_settings(STORE_FIELDS | STATUS_FIELDS)
def revoke(settings: BrokerSettings, kind: str, names: Sequence[str]) -> None:
    """Revoke credentials; whoever uses one is disconnected at once, and nobody else.

    In --store-dir on the broker's machine; without it at all servers of the broker that --server names, as an admin.
    """
    holders = _holders(kind, names)
    if settings.store_dir is None:
        _revoke_at_server(settings, holders)
        return
    _, after = _change(settings, lambda store: (store.revoked(holders), {}))
    click.echo(f"{summary_of(holders)} revoked; {len(after.credentials)} left")
    if not after.credentials:
        click.echo("nobody gets in now; add a credential")


def _revoke_at_server(settings: BrokerSettings, holders: Sequence[Holder]) -> None:
    asked = [(holder.kind.value, holder.name) for holder in holders]
    reports = asking(settings, "credentials revoke", lambda c: credentials_at(c, asked))
    for one in reports:
        done = f"{summary_of(holders)} revoked; {len(one.credentials)} left"
        click.echo(printable(f"{one.name}: {one.error or done}"))
    if any(one.error for one in reports):
        raise OperatorError(
            "not revoked everywhere, see above; `logbroker credentials list` shows all"
        )


@credentials.command(name="list")
@JSON
@with_settings(STORE_FIELDS | STATUS_FIELDS)
def list_all(settings: BrokerSettings, as_json: bool) -> None:
    """Show who has a credential, and since when.

    Of --store-dir on the broker's machine; without it of the broker that --server names, as an admin.
    """
    if settings.store_dir is None:
        found = _merged(asking(settings, "credentials list", credentials_at))
    else:
        folder = store_of(settings)
        if not folder.is_dir():
            raise OperatorError(f"there is no directory {folder}; check --store-dir")
        found = report_of(folder)
    if as_json:
        print_json({"secured": found.secured, "credentials": found.credentials})
        return
    show(table(HEAD, cells(found.credentials), left=range(len(HEAD))))
    if not found.secured:
        click.echo(_OPEN)


def _merged(reports: Sequence[CredentialsReport]) -> CredentialsReport:
    """Return the credentials that any server of a cluster knows; says where their stores differ."""
    for silent in (one for one in reports if one.error):
        click.echo(f"note: {printable(f'{silent.name}: {silent.error}')}", err=True)
    reports = [one for one in reports if not one.error]
    if not reports:
        raise OperatorError("no broker tells of its credentials, see above")
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


def _holders(
    kind: str, names: Sequence[str], partitions: tuple[int, ...] | None = None, output: str = ""
) -> list[Holder]:
    """Return whom a command concerns; raises click.UsageError also for what does not go together."""
    if not names and kind == CredentialKind.ADMIN.value:
        names = (kind,)  # a lone admin needs no name
    if not names:
        raise click.UsageError(f"say which {kind}: a name, or several")
    if partitions is not None and kind != CredentialKind.RECEIVER.value:
        raise click.UsageError(f"--partition is for receivers; a {kind} has none")
    if output == _STDOUT and len(set(names)) > 1:
        raise click.UsageError("standard output takes one credential; --output DIR/ takes several")
    return [Holder(CredentialKind(kind), name) for name in dict.fromkeys(names)]


def _share(holder: Holder, partitions: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the partitions of a new receiver, none for all of them and for what is no receiver."""
    if holder.kind is not CredentialKind.RECEIVER or partitions is not None or holder.name == "all":
        return partitions or ()
    if not (holder.name.isascii() and holder.name.isdigit()):
        raise click.UsageError(
            f"say which partitions {holder} gets: --partition 3, --partition 0,3,5 or --partition all"
        )
    return (int(holder.name),)


def _new_keys(holders: Sequence[Holder]) -> tuple[Seeds, dict[Holder, str]]:
    """Return a new secret of each, and its public key, which alone is stored."""
    seeds = {holder: new_seed() for holder in holders}
    return seeds, {holder: user_key(seed).public for holder, seed in seeds.items()}


def _change(
    settings: BrokerSettings, decide: Change, output: str = "", *, force: bool = False
) -> tuple[CredentialStore, CredentialStore]:
    """Write the credential files, then the changed store, and have a running broker take it; raises `OperatorError`.

    Return the store before and after. If we die or fail in between, files are there that let nobody in, and the same
    command with --force makes them good.
    """
    with held_credentials(store_of(settings)) as held:
        before = held.store
        try:
            after, seeds = decide(before)
        except InvalidStore as error:
            raise OperatorError(f"{error}; `logbroker credentials list` shows all") from None
        files = _files(settings, after, seeds)
        paths = _write(files, output, force=force) if files else []
        held.write(after)
    for one, path in zip(files, paths, strict=False):
        click.echo(
            f"{one.credential.holder}: its credential is {path}; carry it to its program, which takes it by {one.option}"
        )
    click.echo(await_credentials(store_of(settings), after.revision), err=output == _STDOUT)
    return before, after


def _files(settings: BrokerSettings, after: CredentialStore, seeds: Seeds) -> list[CredentialFile]:
    """Return the credential files of new secrets: with the address of the broker, and its own authority where it has one."""
    folder = store_of(settings)
    pki = Pki(folder)
    has_own = pki.broker.exists() and pki.authority.exists()
    authority = pki.read_certificate().decode("ascii") if has_own else ""
    running = read_state(folder).get("server")
    is_told = "server" in settings.model_fields_set or not isinstance(running, str)
    servers = settings.server if is_told else (str(running),)
    of_new = after.found(list(seeds))
    return [CredentialFile(one, seeds[one.holder], servers, authority) for one in of_new]


def _write(files: Sequence[CredentialFile], output: str, *, force: bool) -> list[Path]:
    """Write the credential files and return their paths; raises `OperatorError`."""
    if output == _STDOUT:
        click.echo(files[0].as_toml("FILE"), nl=False)
        sys.stdout.flush()  # whoever reads it may be gone: then nothing is changed
        return []
    folder, name = Path(output), ""
    is_file = output and len(files) == 1 and not output.endswith("/")
    if is_file and not folder.is_dir():
        folder, name = folder.parent, folder.name
    try:
        make_folder(folder, 0o700).close()
    except OSError as error:
        reason = f"cannot make the directory {folder}: {error.strerror}; check --output"
        raise OperatorError(reason) from None
    texts = {folder / (name or one.name): one.as_toml(name or one.name) for one in files}
    write_files(texts, force=force)
    return list(texts)
