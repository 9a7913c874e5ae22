"""One change of a broker's credentials: made in the book, handed over as files, told to the broker that runs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from broker.app import program
from broker.app.exits import OperatorError
from broker.app.options import given
from broker.commands.handing import Handing
from broker.granting.authority import Authority, Use
from broker.granting.book import Book, InvalidEntry
from broker.granting.bookfile import HeldBook, held_book
from broker.granting.carried import Carried
from broker.granting.certificates import VALID, Pki
from broker.granting.handing import take_back
from broker.granting.identity import Identity
from broker.granting.issue import Issued, Sign
from broker.server.neighbour import Taken, read_ready, tell
from broker.server.securing import TLS_FOLDER
from broker.settings import BrokerSettings

__all__ = ["NOTHING", "Change", "begin", "now"]

NOTHING = Handing("", "toml", force=False)
"""For a change that makes no secret."""
_PATIENCE = 60.0  # seconds that a running broker may take to read thousands of credentials


@dataclass(slots=True)
class Change:
    """A change of the book of `folder`; `book` is what came of it, `servers` are what secrets are handed over with."""

    folder: Path
    servers: Sequence[str]
    handing: Handing
    book: Book

    @classmethod
    def of(cls, options: dict[str, Any], handing: Handing = NOTHING) -> "Change":
        """Begin one, as the options of a command say; raises what `begin` raises."""
        folder, settings = begin(options)
        return cls(folder, _servers(settings, folder), handing, Book())

    def say(self, words: str) -> None:
        """Say it to the operator."""
        click.echo(words, err=self.handing.is_printed)

    def sign(self) -> Sign | None:
        """Return what makes certificates, where this broker has an authority of its own with its key."""
        pki = Pki(self.folder / TLS_FOLDER)
        return _signing(pki.read_authority()) if pki.authority_key.exists() else None

    def carried(self, identities: Sequence[Identity], made: Sequence[Issued]) -> list[Carried]:
        """Return what the bearers of new secrets need."""
        pki = Pki(self.folder / TLS_FOLDER)
        authority = (
            pki.read_certificate().decode("ascii")
            if pki.is_there and pki.authority.exists()
            else ""
        )
        return [
            Carried(identity, self.servers, one.secret, authority)
            for identity, one in zip(identities, made, strict=True)
        ]

    def make(self, decide: Callable[[Book], tuple[Book, list[Carried]]]) -> Book:
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
        if self.book.is_mapped and not before.is_mapped:
            self.say(
                "from now on the broker asks every client for a certificate, also those with keys"
            )
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
            case Taken.WHEN_READY:
                self.say(
                    f"the broker of {self.folder} is not ready yet (it may wait for its cluster, see its log); "
                    "the change is in the book and counts as soon as it is, or from its next start"
                )
            case Taken.REFUSED:
                raise OperatorError(
                    f"the change is in the book, but the broker goes on with the old one: {taking.words}"
                )
            case Taken.UNKNOWN:
                raise OperatorError(
                    f"the change is in the book, but the broker has not taken it within {_PATIENCE:g} s; see its log"
                )


def begin(options: dict[str, Any]) -> tuple[Path, BrokerSettings]:
    """Return the broker's folder, absolute, and the settings of a command; raises click.UsageError without a folder."""
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


def _signing(authority: Authority) -> Sign:
    moment = now()

    def sign(name: str) -> dict[str, str]:
        try:
            pair = authority.issue([name], Use.CLIENT, moment, VALID)
        except ValueError as error:
            raise OperatorError(f"{name!r} cannot stand in a certificate: {error}") from None
        return {"tls_cert_pem": (pair.certificate + pair.key).decode("ascii")}

    return sign


def now() -> datetime:
    """Return the time, in whole seconds."""
    return datetime.fromtimestamp(time.time_ns() // 1_000_000_000, UTC)
