"""One change of the credential store: whom it concerns, where new secrets go, and what the running broker makes of it."""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from broker.app import program
from broker.app.exits import OperatorError
from broker.app.files import make_folder
from broker.app.options import given
from broker.auth.certificates import Pki
from broker.auth.credential_file import CredentialFile, remove_files, write_files
from broker.auth.store import (
    EMPTY,
    Credential,
    CredentialKind,
    CredentialStore,
    Holder,
    InvalidStore,
)
from broker.auth.store_file import held_credentials
from broker.server.state_file import Taken, await_credentials, read_state
from broker.server.tls import TLS_FOLDER
from broker.settings import BrokerSettings

__all__ = [
    "NAMES",
    "OUTPUT",
    "CredentialChange",
    "SecretOutput",
    "begin",
    "holders_of",
    "now",
    "partitions_of",
]

Seeds = dict[Holder, str]
"""The secrets of a change, by who is to have them."""

_FEW = 10
_ALL = "all"
_PATIENCE = 60.0  # seconds that a running broker may take to read thousands of credentials


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


NAMES = _options(
    click.argument("kind", type=click.Choice([kind.value for kind in CredentialKind])),
    click.argument("names", nargs=-1, metavar="[NAME]..."),
    click.option(
        "--from",
        "listed",
        type=click.File("r", encoding="utf-8"),
        metavar="FILE",
        help="File of names, one a line, for thousands at once; - is standard input.",
    ),
)
"""The arguments that say whom a command concerns, which `holders_of` reads."""

OUTPUT = _options(
    click.option(
        "--output",
        default="",
        metavar="FILE",
        help="Where the secret goes: a file, a directory for several, - for standard output; default: KIND-NAME.toml here.",
    ),
    click.option("--force", is_flag=True, help="Replace files that are there."),
)
"""The options that say where new secrets go."""


def holders_of(
    kind: str, names: Sequence[str], listed: Iterable[str] | None, *, everybody: bool = False
) -> list[Holder]:
    """Return whom a command concerns, none where `everybody` of the kind is meant; raises click.UsageError."""
    lines = (line.partition("#")[0].strip() for line in listed or ())
    said = (*names, *filter(None, lines))
    if everybody and said:
        raise click.UsageError("--all and names are two ways to say whom; give one of them")
    if not said and not everybody and kind == CredentialKind.ADMIN.value and listed is None:
        said = (kind,)  # a lone admin needs no name
    if not said and not everybody:
        raise click.UsageError(f"say which {kind}: a name, several, or --from FILE")
    return [Holder(CredentialKind(kind), name) for name in said]


def partitions_of(kind: str, words: Sequence[str], name: str = "") -> tuple[int, ...]:
    """Return the partitions of a receiver, none for all of them and for what is no receiver.

    `words` are numbers with commas, or `all`; without any the receiver's name is one. Raises click.UsageError.
    """
    if kind != CredentialKind.RECEIVER.value:
        if words:
            raise click.UsageError(f"--partition is for receivers; a {kind} has none")
        return ()
    said = [word.strip() for one in words or [name] for word in one.split(",")]
    if said == [_ALL]:
        return ()
    if not all(word.isascii() and word.isdigit() for word in said):
        raise click.UsageError(
            f"say which partitions {kind} {name} gets: --partition 3, --partition 0,3,5 or --partition all"
            if not words
            else f"--partition {','.join(said)} is neither numbers nor all"
        )
    return tuple(sorted({int(word) for word in said}))


@dataclass(frozen=True, slots=True)
class SecretOutput:
    """Where new secrets go: a file, a directory, `-` for standard output, or empty for files here."""

    place: str = ""
    force: bool = False

    @property
    def is_printed(self) -> bool:
        """Whether standard output gets the secret, and nothing else."""
        return self.place == "-"

    def check(self, number: int) -> None:
        """Raise click.UsageError for what cannot be done with that many."""
        if self.is_printed and number > 1:
            raise click.UsageError(
                "standard output takes one credential; --output DIR/ takes several"
            )

    def write(self, files: Sequence[CredentialFile]) -> list[Path]:
        """Write the credential files and return their paths; raises `OperatorError`, and then there are none."""
        if not files:
            return []
        if self.is_printed:
            for one in files:
                click.echo(one.as_toml("FILE"), nl=False)
            sys.stdout.flush()  # whoever reads it may be gone: then nothing is changed
            return []
        folder, name = self._folder_and_name(len(files))
        texts = {folder / (name or one.name): one.as_toml(name or one.name) for one in files}
        write_files(texts, force=self.force)
        return list(texts)

    def _folder_and_name(self, number: int) -> tuple[Path, str]:
        target = Path(self.place)
        if self.place and number == 1 and not self.place.endswith("/") and not target.is_dir():
            return target.parent, target.name
        try:
            make_folder(target, 0o700).close()
        except OSError as error:
            raise OperatorError(
                f"cannot make the directory {target}: {error.strerror}; check --output"
            ) from None
        return target, ""


@dataclass(slots=True)
class CredentialChange:
    """A change of the credential store in `folder`; `after` is what came of it."""

    folder: Path
    servers: Sequence[str]
    output: SecretOutput
    after: CredentialStore = EMPTY

    @classmethod
    def of(cls, options: dict[str, Any], output: SecretOutput | None = None) -> "CredentialChange":
        """Begin one, as the options of a command say; raises what `begin` raises."""
        folder, settings = begin(options)
        return cls(folder, _servers(settings, folder), output or SecretOutput())

    def say(self, words: str) -> None:
        """Say it to the operator."""
        click.echo(words, err=self.output.is_printed)

    def make(
        self, decide: Callable[[CredentialStore], tuple[CredentialStore, Seeds]]
    ) -> CredentialStore:
        """Write the credential files, then the changed store; returns the store as it was. Raises `OperatorError`.

        If we die in between, a file is there that lets nobody in, and the same command with --force makes it good.
        """
        with held_credentials(self.folder) as held:
            before = held.store
            try:
                self.after, seeds = decide(before)
            except InvalidStore as error:
                raise OperatorError(f"{error}; `logbroker credentials list` shows all") from None
            files = self._files(self.after.found(list(seeds)), seeds)
            paths = self.output.write(files)
            try:
                held.write(self.after)
            except OperatorError:
                remove_files(paths)
                raise
        self._say_written(files, paths)
        return before

    def _files(self, credentials: Sequence[Credential], seeds: Seeds) -> list[CredentialFile]:
        pki = Pki(self.folder / TLS_FOLDER)
        has_own = pki.is_there and pki.authority.exists()
        authority = pki.read_certificate().decode("ascii") if has_own else ""
        return [
            CredentialFile(one, seeds[one.holder], self.servers, authority) for one in credentials
        ]

    def _say_written(self, files: Sequence[CredentialFile], paths: Sequence[Path]) -> None:
        if len(paths) > _FEW:
            self.say(f"{len(paths)} credentials are in {paths[0].parent}/, a file each")
        else:
            for one, path in zip(files, paths, strict=False):
                self.say(
                    f"{one.credential.holder}: its credential is {path}; "
                    f"carry it there, then {one.hint(path.name)}"
                )
        if files and all(_is_local(server) for server in self.servers):
            self.say(
                f"it names {', '.join(self.servers)}, which is this machine alone; "
                "--server says where others reach the broker"
            )

    def tell(self) -> None:
        """Have a running broker take the change; raises `OperatorError` when it does not."""
        taking = await_credentials(self.folder, self.after.revision, _PATIENCE)
        match taking.taken:
            case Taken.DONE:
                self.say("the broker has taken the change")
            case Taken.NEXT_START:
                self.say(
                    f"no broker runs on {self.folder}; the change is in force from the next start"
                )
            case Taken.WHEN_READY:
                self.say(
                    f"the broker of {self.folder} is not ready yet (it may wait for its cluster, see its log); "
                    "the change is stored and is in force as soon as it is, or from its next start"
                )
            case Taken.REFUSED:
                raise OperatorError(
                    f"the change is stored, but the broker keeps the current credentials: {taking.reason}"
                )
            case Taken.UNKNOWN:
                raise OperatorError(
                    f"the change is stored, but the broker has not taken it within {_PATIENCE:g} s; see its log"
                )


def begin(options: dict[str, Any]) -> tuple[Path, BrokerSettings]:
    """Return the broker's directory, absolute, and the settings of a command; raises click.UsageError without one."""
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    if settings.store_dir is None:
        raise click.UsageError(
            "--store-dir is required (or LOGBROKER_STORE_DIR, or store_dir in the --config file)"
        )
    return settings.store_dir.absolute(), settings


def now() -> datetime:
    """Return the time, in whole seconds."""
    return datetime.fromtimestamp(time.time_ns() // 1_000_000_000, UTC)


def _servers(settings: BrokerSettings, folder: Path) -> Sequence[str]:
    if "server" in settings.model_fields_set:
        return settings.server
    there = read_state(folder).get("server")
    return (there,) if isinstance(there, str) else settings.server


def _is_local(server: str) -> bool:
    host = server.rpartition("://")[2].rpartition(":")[0].strip("[]")
    return host.startswith("127.") or host in {"localhost", "::1"}
