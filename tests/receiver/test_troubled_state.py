"""Whatever happens to files, journal, offset or stream: it is told by name with what to do, and no line comes twice.

One row per case: what is done, what is said at the next start, by which `offsets` command it goes on (none: by itself),
and what the file of the host holds in the end.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.app.exits import ConfigurationError, Exit, OperatorError
from broker.client import bucket
from broker.client.connection import Connection
from broker.wire.offset import Offset
from broker.wire.streams import OFFSETS_BUCKET, STREAM
from receiver.cli import logreceiver
from receiver.consume.assignment import Done
from receiver.storage.disk import exclusive_lock
from tests.receiver.partition import Partition, ours

pytestmark = pytest.mark.nats

BLOCKS = [b"%d\n" % number for number in range(6)]
ALL = b"".join(BLOCKS)
OLD = b"".join(BLOCKS[:2] + BLOCKS[4:])


@dataclass(frozen=True, slots=True)
class Scene:
    """A partition whose receiver has two batches of two blocks behind it; two more blocks wait."""

    partition: Partition
    old: Path
    """A copy of files and state as they were after the first batch."""

    def start(self) -> Offset:
        """Claim as a receiver does that starts."""
        return self.partition.take_over()

    def receive(self) -> None:
        """Start, write one batch, commit it."""
        offset = self.start()
        done = self.partition.run(offset.next, offset.epoch)
        assert isinstance(done, Done), done
        self.move(next=done.until, lines=offset.lines + done.lines)

    def move(self, **changes: int | str) -> None:
        """Change the entry as a commit, or an accident, does."""

        async def change(connection: Connection) -> None:
            entry = await bucket.read(connection, OFFSETS_BUCKET, "p0")
            assert entry
            offset = replace(Offset.decode(entry.value), **changes)  # type: ignore[arg-type]
            await bucket.write(connection, OFFSETS_BUCKET, "p0", offset.encode(), entry.revision)

        self.partition.ask(change)

    def send(self, first: int, until: int) -> None:
        self.partition.publish(
            *(ours("web01", "app", 2 * n, BLOCKS[n]) for n in range(first, until))
        )

    def offsets(self, *words: str) -> None:
        arguments = ["offsets", *words, "--partition", "0", "--yes", "--server"]
        folders = ["--output", str(self.partition.output), "--state-dir", str(self.partition.state)]
        more = folders if words == ("adopt",) else []
        result = CliRunner().invoke(logreceiver, [*arguments, self.partition.url, *more])
        assert result.exit_code == 0, (result.output, result.exception)


@pytest.fixture
def scene(logs_url: str, tmp_path: Path) -> Scene:
    scene = Scene(Partition(logs_url, tmp_path / "here"), tmp_path / "old")
    scene.send(0, 2)
    scene.receive()
    shutil.copytree(scene.partition.folder, scene.old)
    scene.send(2, 4)
    scene.receive()
    scene.send(4, 6)
    return scene


def _forget_entry(scene: Scene) -> None:
    scene.partition.ask(
        lambda connection: connection.ask("$KV.LOGS_OFFSETS.p0", b"", {"KV-Operation": "DEL"})
    )


def _garble_entry(scene: Scene) -> None:
    scene.partition.ask(lambda connection: connection.ask("$KV.LOGS_OFFSETS.p0", b"{"))


def _die_before_the_commit_and_forget_entry(scene: Scene) -> None:
    offset = scene.start()
    assert isinstance(scene.partition.run(offset.next, offset.epoch), Done)
    _forget_entry(scene)


def _restore_files(scene: Scene) -> None:
    shutil.rmtree(scene.partition.folder)
    shutil.copytree(scene.old, scene.partition.folder)


def _restore_entry(scene: Scene) -> None:
    scene.move(next=1, epoch=1, commit="")


def _remove_store(scene: Scene) -> None:
    scene.partition.store.unlink()


def _empty_store(scene: Scene) -> None:
    scene.partition.store.write_bytes(b"")


def _overwrite_store(scene: Scene) -> None:
    scene.partition.store.write_bytes(b"junk\n" * 1000)


def _later_store(scene: Scene) -> None:
    scene.partition.sql("PRAGMA user_version = 9")


def _restore_store(scene: Scene) -> None:
    shutil.copyfile(scene.old / "state" / "p0.db", scene.partition.store)


def _remove_state(scene: Scene) -> None:
    shutil.rmtree(scene.partition.state)


def _replace_output(scene: Scene) -> None:
    scene.partition.output.rename(scene.old / "away")


def _rewind_stream(scene: Scene) -> None:
    async def make_anew(connection: Connection) -> None:
        config = (await connection.api(f"STREAM.INFO.{STREAM}"))["config"]
        await connection.api(f"STREAM.DELETE.{STREAM}")
        await connection.api(f"STREAM.CREATE.{STREAM}", config)

    scene.partition.ask(make_anew)
    scene.send(3, 6)  # and one that the files have, as a shipper may that is in doubt


def _forget_consumer(scene: Scene) -> None:
    scene.partition.ask(lambda c: c.api(f"CONSUMER.DELETE.{STREAM}.receiver-p0"))


def _nothing(_: Scene) -> None:
    """Leave everything as it is."""


def refused(scene: Scene, says: str) -> None:
    """Assert that a start says so in one line, and that neither it nor a task cuts or writes anything."""
    live, store = scene.partition.output / "web01.log", scene.partition.store
    size = live.stat().st_size if live.exists() else 0
    if size:
        with live.open("ab") as file:
            file.write(b"uncommitted\n")
    before = scene.partition.files() if size else {}, store.read_bytes() if store.exists() else b""

    with pytest.raises(ConfigurationError, match=f"partition 0: .*{says}") as raised:
        scene.start()
    if "offsets adopt" in str(raised.value):
        assert not isinstance(scene.partition.run(5, 2), Done)

    assert "\n" not in str(raised.value)
    assert raised.value.code == Exit.CONFIGURATION
    after = scene.partition.files() if size else {}, store.read_bytes() if store.exists() else b""
    assert after == before
    if size:
        os.truncate(live, size)


@pytest.mark.parametrize(
    ("happens", "says", "mend", "holds"),
    [
        pytest.param(_forget_entry, "key p0 .* is gone", "set --to 5", ALL, id="entry"),
        pytest.param(_forget_entry, "up to sequence 5; .*adopt", "adopt", ALL, id="entry, adopted"),
        pytest.param(_garble_entry, "not an offset.*adopt", "adopt", ALL, id="entry garbled"),
        pytest.param(
            *(_die_before_the_commit_and_forget_entry, "is gone.*up to sequence 7; ", "adopt", ALL),
            id="entry missing, last batch not committed",
        ),
        pytest.param(_restore_files, "up to sequence 3.*is 5", "set --to 3", ALL, id="KV ahead"),
        pytest.param(_restore_files, "offsets adopt", "adopt", OLD, id="KV ahead, adopted"),
        pytest.param(_restore_store, "up to sequence 3.*is 5", "adopt", ALL, id="older store"),
        pytest.param(_restore_entry, "up to sequence 5.*is 1", "set --to 5", ALL, id="KV behind"),
        pytest.param(_restore_entry, "offsets adopt", "adopt", ALL, id="KV behind, adopted"),
        pytest.param(_remove_store, r"p0\.db is gone", "adopt", ALL, id="store removed"),
        pytest.param(_empty_store, r"p0\.db is gone", "adopt", ALL, id="store empty"),
        pytest.param(_overwrite_store, "is damaged", "adopt", ALL, id="store damaged"),
        pytest.param(_later_store, "version 9", None, None, id="store of a later program"),
        pytest.param(_remove_state, "--state-dir", "adopt", ALL, id="state folder removed"),
        pytest.param(_replace_output, "mounted", "adopt", BLOCKS[4] + BLOCKS[5], id="output"),
        pytest.param(_rewind_stream, "made anew", "set --to earliest", ALL, id="stream made anew"),
        pytest.param(_forget_consumer, None, None, ALL, id="consumer deleted"),
        pytest.param(_nothing, None, None, ALL, id="nothing"),
    ],
)
def test_it_is_told_and_no_line_is_lost_or_comes_twice(
    scene: Scene,
    happens: Callable[[Scene], None],
    says: str | None,
    mend: str | None,
    holds: bytes | None,
) -> None:
    happens(scene)

    if says is not None:
        refused(scene, says)
    if holds is None:
        return
    if mend is not None:
        scene.offsets(*mend.split())
    scene.receive()

    assert scene.partition.read("web01") == holds


def test_moved_to_another_machine_with_its_files_it_goes_on(scene: Scene, tmp_path: Path) -> None:
    there = scene.partition.with_folder(tmp_path / "there")
    shutil.copytree(scene.partition.folder, there.folder, dirs_exist_ok=True)

    replace(scene, partition=there).receive()

    assert there.read("web01") == ALL


def test_adopting_is_refused_while_a_receiver_is_at_work_and_where_there_is_no_offset(
    scene: Scene,
) -> None:
    words = ["offsets", "adopt", "--partition", "0", "--yes", "--server", scene.partition.url]
    words += ["--output", str(scene.partition.output), "--state-dir", str(scene.partition.state)]

    with exclusive_lock(scene.partition.state / "p0.lock", 0):
        locked = CliRunner().invoke(logreceiver, words)
    _forget_entry(scene)
    scene.partition.store.unlink()
    unknown = CliRunner().invoke(logreceiver, words)

    assert isinstance(locked.exception, OperatorError)
    assert "a receiver is running there" in str(locked.exception)
    assert isinstance(unknown.exception, ConfigurationError)
    assert "offsets set --partition 0 --to SEQUENCE" in str(unknown.exception)
