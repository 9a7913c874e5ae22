"""The log of a Delta table, written by delta-rs: read a version, commit the next one, sync it.

delta-rs makes no fsync, accepts a transaction again through a fresh handle, and by default commits
behind whatever was committed meanwhile. So a commit here names the one version after that of the
handle, on which the transactions were read. If another program has taken that version, the same
files go into the next one, unless its commits changed our transactions or files that we remove.
"""

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction

from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.faults import fault
from nats_logship.table_files import explain
from receiver.table.location import Location, sync_folder
from receiver.table.parquet import File, KnownFile, TableForm

_CONFIGURATION = {"delta.logRetentionDuration": "interval 2 days"}
_PARTITIONED = ["date"]
_STATISTICS = "delta.dataSkippingStatsColumns"
_NOTHING_ELSE = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_CHECKPOINT_EVERY = 20  # versions
_ATTEMPTS = 20  # to commit before other programs do

Filter = tuple[str, str, Any]

logger = logging.getLogger(__name__)


class Overtaken(Exception):
    """Somebody else has committed to the table since it was read: read it again."""


class TableTrouble(Exception):
    """The table cannot be read or written now; the next round tries again."""


@dataclass(slots=True)
class Log:
    """The log of one table; `own` are its columns when we create it."""

    location: Location
    own: TableForm
    _table: DeltaTable | None = None
    _known: str = ""
    _checkpointed: int = 0
    _synced: set[str] = field(default_factory=set)
    _transactions: dict[str, int | None] = field(default_factory=dict)  # those asked for
    _asked: int = -1  # the version that they are of

    def refresh(self) -> None:
        """Read the newest version; creates the table if there is none.

        Raises `TableTrouble`, ConfigurationError for a table of another program, OperatorError if
        the table was removed since the first call, or is another one.
        """
        with self._trouble():
            if self._table is None:
                self._table = self._open()
                self._require_ours()
                self.sync()
            else:
                self._table.update_incremental()  # an error for a version before the one it knows
                self._require_version()

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """Raise `TableTrouble` for errors after which it is unknown what the table has."""
        try:
            yield
        except (DeltaError, OSError) as error:
            self._table, self._synced, self._asked = None, set(), -1
            raise TableTrouble(explain(error)) from None

    def _open(self) -> DeltaTable:
        root, options = self.location.root, self.location.storage_options
        if folder := self.location.folder:
            _drop_torn_commit(folder / "_delta_log")
            _drop_torn_checkpoint(folder / "_delta_log")
        try:
            return DeltaTable(root, storage_options=options)
        except TableNotFoundError:
            if self._known:
                raise self._removed() from None
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            sync_folder(folder.parent)
        logger.info("creating table %s", root)
        return DeltaTable.create(
            root,
            schema=self.own.schema,
            mode="ignore",
            partition_by=_PARTITIONED,
            name=self.own.name,
            # for other columns the dataset of delta-rs would compare with NULL: no row then
            configuration=_CONFIGURATION | {_STATISTICS: ",".join(self.own.statistics)},
            storage_options=options,
            post_commithook_properties=_NOTHING_ELSE,
        )

    def _require_ours(self) -> None:
        """Raise if another program or person has made this table, or made it again meanwhile."""
        found = {one.name: one.type for one in pa.schema(self.table.schema())}
        strange = [one.name for one in self.own.schema if found.get(one.name) != one.type]
        if strange or self.table.metadata().partition_columns != _PARTITIONED:
            raise ConfigurationError(
                f"{self.location.root} is no table of `logreceiver table`: look at its columns "
                f"({', '.join(strange)}) and partitions, or give another --table"
            )
        if (version := self.table.protocol().min_reader_version) > 1:
            raise ConfigurationError(
                f"{self.location.root} now needs readers of version {version} (deletion vectors, "
                "column mapping): files could not be merged; rewrite it without, or give another "
                "--table"
            )
        if self._known not in {"", self.table_id}:
            raise self._removed()
        self._known = self.table_id

    def _removed(self) -> OperatorError:
        return OperatorError(
            f"{self.location.root} was removed or exchanged while it was written; start again"
        )

    @property
    def table(self) -> DeltaTable:
        """The handle."""
        assert self._table is not None, "the log is read before it is used"
        return self._table

    @property
    def version(self) -> int:
        """The version that was read."""
        return self.table.version()

    @property
    def table_id(self) -> str:
        """The id of the table, which a copy of it has too."""
        return str(self.table.metadata().id)

    @property
    def form(self) -> TableForm:
        """Its columns now, with those that somebody has added to ours."""
        return replace(self.own, schema=pa.schema(self.table.schema()))

    def transaction(self, name: str) -> int | None:
        """Return the version of a transaction, None if there is none; raises `TableTrouble`.

        delta-rs reads files of the log for each question, so it is asked once for each version.
        """
        with self._trouble():
            if self._asked != self.version:
                self._asked, self._transactions = self.version, {}
            if name not in self._transactions:
                self._transactions[name] = self.table.transaction_version(name)
            return self._transactions[name]

    def files(self) -> list[KnownFile]:
        """Return the files of the version that was read, oldest first; raises `TableTrouble`."""
        with self._trouble():
            rows = pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
        found = [
            KnownFile(
                path=row["path"],
                day=row["partition.date"],
                size=row["size_bytes"],
                rows=row["num_records"] or 0,
                begins=_text(row.get("min.time")),
                ends=_text(row.get("max.time")),
            )
            for row in rows
            if row["partition.date"]  # other programs may have added rows without a date
        ]
        return sorted(found, key=lambda one: (one.day, one.begins, one.path))

    def read(self, columns: Sequence[str], filters: Sequence[Filter]) -> list[dict[str, Any]]:
        """Return rows of the version that was read; none if files are damaged or gone."""
        try:
            found = self.table.to_pyarrow_table(columns=[*columns], filters=[*filters])
            return [*found.to_pylist()]
        except (DeltaError, OSError, pa.ArrowException) as error:
            logger.warning("rows of %s cannot be read: %s", self.location.root, explain(error))
            return []

    def append(self, files: Iterable[File], transactions: Mapping[str, int]) -> None:
        """Commit new files with transactions, and sync.

        Raises `Overtaken`, `TableTrouble`, OperatorError if what was read is not there any more.
        """
        self._commit([_add(one, is_new=True) for one in files], transactions)

    def exchange(self, old: Iterable[KnownFile], new: Iterable[File]) -> None:
        """Commit new files with the same rows in place of old ones; raises as `append`."""
        removed = [_remove(one, is_gone=False) for one in old]
        self._commit([*removed, *(_add(one, is_new=False) for one in new)], {})

    def remove(self, old: Iterable[KnownFile]) -> None:
        """Commit that the rows of files are gone; raises as `append`."""
        self._commit([_remove(one, is_gone=True) for one in old], {})

    def _commit(
        self, actions: Sequence[AddAction | RemoveAction], transactions: Mapping[str, int]
    ) -> None:
        properties = CommitProperties(
            max_commit_retries=0,
            app_transactions=[Transaction(name, at) for name, at in transactions.items()],
        )
        with self._trouble():
            self._require_version()
            for left in reversed(range(_ATTEMPTS)):
                self._require_files(actions)
                try:
                    self.table.create_write_transaction(
                        list(actions),
                        mode="append",
                        schema=self.table.schema(),
                        partition_by=_PARTITIONED,
                        commit_properties=properties,
                        post_commithook_properties=_NOTHING_ELSE,
                    )
                    break
                except CommitFailedError as error:
                    if not left:
                        raise Overtaken(explain(error)) from None
                self._rebase(transactions)
            fault("table_committed")
            self.table.update_incremental()
            self.sync()

    def _rebase(self, transactions: Iterable[str]) -> None:
        """Read the commits of others; raises `Overtaken` if they changed our transactions."""
        known = [self.transaction(name) for name in transactions]
        self.refresh()
        self._require_ours()
        if known != [self.transaction(name) for name in transactions]:
            raise Overtaken("its progress has been changed meanwhile")

    def _require_files(self, actions: Iterable[AddAction | RemoveAction]) -> None:
        """Raise if new files are not where we read, or old ones not in the version that was read.

        A file of an executor that does not share our folder is seen by no reader.
        """
        old = {one.path for one in actions if isinstance(one, RemoveAction)}
        if old and not old <= {one.path for one in self.files()}:
            raise Overtaken("files to be removed have been changed meanwhile")
        new = {one.path: one.size for one in actions if isinstance(one, AddAction)}
        for found in self.location.file_system.get_file_info([*new]) if new else ():
            if found.size != (size := new[found.path]):
                raise OperatorError(
                    f"executors wrote {self.location.root}/{found.path} ({size} bytes), which this "
                    "machine does not see: nothing was committed; share the folder with all "
                    "executors, or give a --table in an object store (s3://…)"
                )

    def _require_version(self) -> None:
        """Raise if the version that was read is not there: delta-rs does not notice it.

        It would commit a later version, which is none of the table as it is now.
        """
        path = f"_delta_log/{self.version:020}.json"
        if not self.location.file_system.get_file_info(path).is_file:
            raise self._removed()

    def checkpoint(self) -> bool:
        """Write a checkpoint if one is due, and return whether it was; raises as `append`."""
        if self.version - self._checkpointed < _CHECKPOINT_EVERY:
            return False
        with self._trouble():
            self.table.create_checkpoint()
            self.sync()
        self._checkpointed = self.version
        return True

    def remove_old_versions(self) -> None:
        """Remove versions before a checkpoint that are older than two days, by our own clock.

        Raises as `append`.
        """
        with self._trouble():
            self.table.cleanup_metadata()

    def vacuum(self, hours: int) -> int:
        """Delete files that no version of the last `hours` names, by our own clock.

        Returns how many. Raises as `append`.
        """
        with self._trouble():
            self.sync()  # a power loss must not bring back a version that names deleted files
            gone = self.table.vacuum(
                retention_hours=hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                post_commithook_properties=_NOTHING_ELSE,
            )
            fault("table_vacuumed")
            self.table.update_incremental()
            self.sync()
        return len(gone)

    def sync(self) -> None:
        """Bring the log to disk, if it is in a folder; raises OSError."""
        if not (root := self.location.folder):
            return
        folder = root / "_delta_log"
        names = {one.name for one in os.scandir(folder) if one.is_file()}  # Trino makes a folder
        for name in names - self._synced:
            # another writer's temporary file may be gone
            with suppress(FileNotFoundError), (folder / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(folder)
        self._synced = names - {"_last_checkpoint"}  # it is written again


def _drop_torn_commit(folder: Path) -> None:
    """Remove the newest commit if a power loss has left it incomplete: it was never synced."""
    commits = sorted(folder.glob("*[0-9].json")) if folder.is_dir() else []
    if not commits:
        return
    try:
        for line in commits[-1].read_bytes().splitlines() or [b""]:
            json.loads(line)
    except ValueError:
        logger.warning("%s is incomplete, as after a power loss; it is removed", commits[-1])
        commits[-1].unlink()
        sync_folder(folder)


def _drop_torn_checkpoint(folder: Path) -> None:
    """Remove the newest checkpoint if it is incomplete: the commits before it are still there.

    Also the name of the last checkpoint if there is no such one, which delta-rs would not read.
    """
    with suppress(OSError, ValueError, KeyError, TypeError):
        version = json.loads((folder / "_last_checkpoint").read_bytes())["version"]
        if not any(folder.glob(f"{version:020}.checkpoint*")):
            (folder / "_last_checkpoint").unlink()
    checkpoints = sorted(folder.glob("*.checkpoint.parquet")) if folder.is_dir() else []
    try:
        if checkpoints:
            pq.read_metadata(checkpoints[-1])
    except (pa.ArrowInvalid, OSError):
        logger.warning("%s is incomplete, as after a power loss; it is removed", checkpoints[-1])
        (folder / "_last_checkpoint").unlink(missing_ok=True)
        checkpoints[-1].unlink()
        sync_folder(folder)


def _add(one: File, *, is_new: bool) -> AddAction:
    return AddAction(one.path, one.size, {"date": one.day}, _now_ms(), is_new, one.stats)


def _remove(one: KnownFile, *, is_gone: bool) -> RemoveAction:
    return RemoveAction(
        one.path, is_gone, _now_ms(), size=one.size, partition_values={"date": str(one.day)}
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _text(value: object) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else ""
