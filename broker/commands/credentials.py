"""`logbroker credentials`: who gets in at a broker, in an operator's words. Changes the book, then tells the broker."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from broker.commands.handing import Handing, handing_of, handing_options
from broker.commands.whom import Whom, whom
from broker.durations import format_duration, parse_duration
from broker.exits import OperatorError
from broker.granting.book import Book, Entry, InvalidEntry, account_name
from broker.granting.bookfile import HeldBook, held_book, load_book
from broker.granting.carried import Carried
from broker.granting.handing import take_back
from broker.granting.identity import Certificate, Identity, Nkey
from broker.granting.issue import Issued, Way, issue
from broker.granting.partitions import partitions_of
from broker.looking.credentials import connected, rows, table
from broker.running import program
from broker.running.consent import YES, ask
from broker.running.options import given, settings_options
from broker.serving.neighbour import Taken, read_ready, tell
from broker.settings import BrokerSettings

__all__ = ["credentials"]

_FIELDS = frozenset({"store_dir", "server", "log_level", "log_format"})
_LOCAL = frozenset({"store_dir", "log_level", "log_format"})
_PATIENCE = 60.0  # seconds that a running broker may take to read thousands of credentials
_NOTHING = Handing("", "toml", force=False)
_WAY = click.option(
    "--with",
    "way",
    type=click.Choice([way.value for way in Way]),
    help="What proves who it is; default: nkey, or what it was before.",
)


@click.group()
def credentials() -> None:
    """Give hosts, receivers and admins the means to get in, and take them away again.

    They stand in DIR/credentials.json, without a secret. A broker that runs on DIR takes every change at once and
    disconnects nobody but whom it concerns. Before the first credential everybody on this machine gets in.
    """


@credentials.command()
@whom(everybody=False)
@_WAY
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="N",
    help="Of a receiver: its partitions, as 3 or 0,3,5, or all; default: the one that is its name.",
)
@click.option(
    "--subject",
    default="",
    metavar="NAME",
    help="The name in its certificate, --with certificate; default: its own.",
)
@handing_options
@settings_options(BrokerSettings, _FIELDS)
def add(
    whom: Whom, way: str | None, partitions: Sequence[str], subject: str, **options: Any
) -> None:
    """Give someone new a credential: `add host web01`, `add receiver 3`, `add admin`."""
    handing = handing_of(options)
    handing.check(len(whom.new))
    if subject and (len(whom.new) > 1 or way != Way.CERTIFICATE.value):
        raise click.UsageError("--subject is the name in one --with certificate")
    try:
        shares = [partitions_of(key, partitions) for key in whom.new]
    except InvalidEntry as error:
        raise click.UsageError(str(error)) from None
    desk = _Desk.of(options, handing)

    def added(book: Book) -> tuple[Book, list[Carried]]:
        made = [issue(Way(way or "nkey"), key, subject) for key in whom.new]
        new = [
            Identity(key.kind, key.name, one.proof, share)
            for key, one, share in zip(whom.new, made, shares, strict=True)
        ]
        return book.added(new, _now()), desk.carried(new, made)

    before = desk.change(added)
    if not before.secured:
        desk.say("from now on nobody gets in without a credential; who came without one is let go")
    desk.tell()


@credentials.command()
@whom(everybody=True)
@_WAY
@click.option(
    "--grace",
    default="1d",
    show_default=True,
    metavar="TIME",
    help="How long the old secret is good as well; 0 ends it now.",
)
@handing_options
@settings_options(BrokerSettings, _FIELDS)
def rotate(whom: Whom, way: str | None, grace: str, **options: Any) -> None:
    """Make new secrets; the old ones stay good for --grace, so that nobody is cut off meanwhile."""
    lapse = _length(grace)
    handing = handing_of(options)
    desk = _Desk.of(options, handing)

    def rotated(book: Book) -> tuple[Book, list[Carried]]:
        keys = whom.among(book)
        handing.check(len(keys))
        entries = book.found(keys)
        made = [_renewed(entry, way) for entry in entries]
        proofs = {key: one.proof for key, one in zip(keys, made, strict=True)}
        turned = book.rotated(proofs, _now(), lapse)
        return turned, desk.carried([entry.identity for entry in turned.found(keys)], made)

    desk.change(rotated)
    left = f"is good for {format_duration(lapse)} more" if lapse else "gets nobody in any more"
    desk.say(f"what was used before {left}")
    desk.tell()


@credentials.command()
@whom(everybody=True)
@click.option(
    "--open-again",
    is_flag=True,
    help="With the last one: let in everybody on this machine without a credential again.",
)
@YES
@settings_options(BrokerSettings, _LOCAL)
def revoke(whom: Whom, open_again: bool, yes: bool, **options: Any) -> None:
    """Take credentials away; whoever uses one is disconnected at once, and nobody else."""
    desk = _Desk.of(options)
    if not whom.names and not yes:
        ask(f"Take away the credential of every {whom.kind.value}?")
    if open_again and not yes:
        ask("Let in everybody on this machine without a credential?")

    def revoked(book: Book) -> tuple[Book, list[Carried]]:
        left = book.revoked(whom.among(book), _now())
        return (left.opened() if open_again else left), []

    before = desk.change(revoked)
    gone = len(before.entries) - len(desk.book.entries)
    desk.say(
        f"{gone} credential{'s' if gone > 1 else ''} taken away; {len(desk.book.entries)} left"
    )
    if not desk.book.entries:
        desk.say(
            "everybody on this machine gets in without a credential"
            if open_again
            else "nobody gets in now; add a credential (or revoke with --open-again)"
        )
    desk.tell()


@credentials.command(name="list")
@settings_options(BrokerSettings, _LOCAL)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def list_all(as_json: bool, **options: Any) -> None:
    """Show who has a credential, since when, and how many connections use it."""
    folder, _ = _begin(options)
    book = load_book(folder)
    found = rows(book, _now(), connected(read_ready(folder).get("http")))
    if as_json:
        click.echo(json.dumps({"secured": book.secured, "credentials": found}, indent=2))
    elif found:
        click.echo(table(found))
    else:
        click.echo(
            "nobody has a credential, and nobody gets in"
            if book.secured
            else "no credentials: everybody on this machine gets in"
        )


@dataclass(slots=True)
class _Desk:
    """Where one command's change is made: the book of a folder, and what is handed over for it."""

    folder: Path
    servers: Sequence[str]
    handing: Handing
    book: Book

    @classmethod
    def of(cls, options: dict[str, Any], handing: Handing = _NOTHING) -> "_Desk":
        folder, settings = _begin(options)
        return cls(folder, _servers(settings, folder), handing, Book())

    def say(self, words: str) -> None:
        click.echo(words, err=self.handing.is_printed)

    def carried(self, identities: Sequence[Identity], made: Sequence[Issued]) -> list[Carried]:
        return [
            Carried(identity, self.servers, one.secret)
            for identity, one in zip(identities, made, strict=True)
        ]

    def change(self, decide: Callable[[Book], tuple[Book, list[Carried]]]) -> Book:
        """Change the book and hand over the secrets, secrets first; returns the book as it was.

        If we die in between, a file is there that lets nobody in, and the same command with --force makes it good.
        """
        with held_book(self.folder) as held:
            before = held.book
            try:
                self.book, carried = decide(before)
            except InvalidEntry as error:
                raise OperatorError(f"{error}; `logbroker credentials list` shows all") from None
            self._hand_over(held, carried)
        return before

    def _hand_over(self, held: HeldBook, carried: Sequence[Carried]) -> None:
        sheets = self.handing.give(carried)
        try:
            held.write(self.book)
        except OperatorError:
            take_back(sheets)
            raise
        for words in self.handing.words(carried, sheets):
            self.say(words)
        if carried and all(_is_local(server) for server in self.servers):
            self.say(
                f"it names {', '.join(self.servers)}, which is this machine alone; "
                "--server says where others reach the broker"
            )

    def tell(self) -> None:
        """Have a running broker take the change; raises `OperatorError` when it does not."""
        taking = tell(self.folder, self.book.revision, _PATIENCE)
        match taking.taken:
            case Taken.DONE:
                self.say("the broker has taken it")
            case Taken.NEXT_START:
                self.say(f"no broker runs on {self.folder}; it counts from the next start")
            case Taken.REFUSED:
                raise OperatorError(
                    f"the change is in the book, but the broker goes on with the old one: {taking.words}"
                )
            case Taken.UNKNOWN:
                raise OperatorError(
                    f"the change is in the book, but the broker has not taken it within {_PATIENCE:g} s; see its log"
                )


def _begin(options: dict[str, Any]) -> tuple[Path, BrokerSettings]:
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    if settings.store_dir is None:
        raise click.UsageError(
            "--store-dir is required (or LOGBROKER_STORE_DIR, or store_dir in the --config file)"
        )
    return settings.store_dir.absolute(), settings


def _servers(settings: BrokerSettings, folder: Path) -> Sequence[str]:
    if "server" in settings.model_fields_set:
        return settings.server
    there = read_ready(folder).get("server")
    return (there,) if isinstance(there, str) else settings.server


def _is_local(server: str) -> bool:
    host = server.rpartition("://")[2].rpartition(":")[0].strip("[]")
    return host.startswith("127.") or host in {"localhost", "::1"}


def _renewed(entry: Entry, way: str | None) -> Issued:
    proof = entry.identity.proof
    if way is None:
        way = "nkey" if isinstance(proof, Nkey) else "password"
        if isinstance(proof, Certificate):
            way = "certificate"
    if way == "certificate" and isinstance(proof, Certificate):
        raise OperatorError(
            f"{entry.key} proves itself by a certificate, which is renewed by who signed it (`logbroker tls issue`)"
        )
    return issue(Way(way), entry.key, taken={account_name(proof) for proof in entry.proofs()})


def _length(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.UsageError(f"--grace: {error}") from None


def _now() -> datetime:
    return datetime.fromtimestamp(time.time_ns() // 1_000_000_000, UTC)
