"""Damage to files, store, offset or stream is reported with a remedy, and no line is repeated.

One row per case: what happens, the reason at the next start, the `offsets` command that repairs it
(none: it goes on by itself), and the host's file in the end.
"""

import os
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nats_logship.app.command_line import settings_from_options
from nats_logship.app.exits import ConfigurationError, Exit, OperatorError
from nats_logship.app.locks import exclusive_lock
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.streams import STREAM
from receiver.cli import logreceiver
from receiver.consume.assignment import Done
from receiver.driver.from_settings import make_claim
from receiver.settings import ReceiverSettings
from receiver.storage.damage import Damaged
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

    def send(self, first: int, until: int) -> None:
        self.partition.publish(
            *(ours("web01", "app", 2 * n, BLOCKS[n]) for n in range(first, until))
        )

    def write_entry(self, value: bytes, headers: dict[str, str] | None = None) -> None:
        self.partition.ask(lambda c: c.ask("$KV.LOGS_OFFSETS.p0", value, headers))

    def offsets(self, *command: str) -> Result:
        words = ["offsets", *command, "--partition=0", "--yes", f"--server={self.partition.url}"]
        if command == ("adopt",):
            words += [f"--output={self.partition.output}", f"--state-dir={self.partition.state}"]
        return CliRunner().invoke(logreceiver, words)


@pytest.fixture
def scene(logs_url: str, tmp_path: Path) -> Scene:
    return make_scene(Partition(logs_url, tmp_path / "here"), tmp_path)


def make_scene(partition: Partition, tmp_path: Path) -> Scene:
    scene = Scene(partition, tmp_path / "old")
    scene.send(0, 2)
    scene.partition.start()
    shutil.copytree(scene.partition.folder, scene.old)
    scene.send(2, 4)
    scene.partition.start()
    scene.send(4, 6)
    return scene


def forget_entry(scene: Scene) -> None:
    scene.write_entry(b"", {"KV-Operation": "DEL"})


def die_and_forget_entry(scene: Scene) -> None:
    scene.partition.start()
    forget_entry(scene)


def restore_files(scene: Scene) -> None:
    shutil.rmtree(scene.partition.folder)
    shutil.copytree(scene.old, scene.partition.folder)


def restore_store(scene: Scene) -> None:
    shutil.copyfile(scene.old / "state" / "p0.db", scene.partition.store)


def restore_entry(scene: Scene) -> None:
    scene.write_entry(replace(scene.partition.offset(), next=1, epoch=1, commit="").encode())


def rewind_stream(scene: Scene) -> None:
    scene.partition.make_stream_anew()
    scene.send(3, 6)  # and one that the files have, as a shipper may that is in doubt


def delete_consumer(scene: Scene) -> None:
    scene.partition.ask(lambda c: c.api(f"CONSUMER.DELETE.{STREAM}.receiver-p0"))


def make_store_newer(scene: Scene) -> None:
    scene.partition.sql("PRAGMA user_version = 9")


def lose_output(scene: Scene) -> None:
    scene.partition.output.rename(scene.old / "away")


def store(content: bytes) -> Callable[[Scene], object]:
    return lambda scene: scene.partition.store.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Scene], object], str | None, str | None, bytes | None]] = {
    "entry": (forget_entry, "key p0 .* is gone", "set --to 5", ALL),
    "entry, adopted": (forget_entry, "end before sequence 5; .*adopt", "adopt", ALL),
    "entry garbled": (lambda s: s.write_entry(b"{"), "not an offset.*adopt", "adopt", ALL),
    "batch not committed": (die_and_forget_entry, "gone.*end before sequence 7; ", "adopt", ALL),
    "KV ahead": (restore_files, "end before sequence 3.*is 5.*another --output", "set --to 3", ALL),
    "KV ahead, adopted": (restore_files, "offsets adopt", "adopt", OLD),
    "older store": (restore_store, "end before sequence 3.*is 5", "adopt", ALL),
    "KV behind": (
        restore_entry,
        "end before sequence 5.*is 1.*offsets are older",
        "set --to 5",
        ALL,
    ),
    "KV behind, adopted": (restore_entry, "offsets adopt", "adopt", ALL),
    "store removed": (lambda s: s.partition.store.unlink(), r"p0\.db is gone", "adopt", ALL),
    "store empty": (store(b""), r"p0\.db is gone", "adopt", ALL),
    "store damaged": (store(b"junk\n" * 1000), "is damaged", "adopt", ALL),
    "store of a later program": (make_store_newer, "version 9", None, None),
    "state removed": (lambda s: shutil.rmtree(s.partition.state), "--state-dir", "adopt", ALL),
    "output removed": (lose_output, "mounted", "adopt", BLOCKS[4] + BLOCKS[5]),
    "stream recreated": (rewind_stream, "recreated", "set --to earliest", ALL),
    "consumer deleted": (delete_consumer, None, None, ALL),
}


def refused(scene: Scene, says: str) -> None:
    """Assert that a start is refused in one line, and that neither it nor a task changes a file."""
    live, store = scene.partition.output / "web01.log", scene.partition.store
    size = live.stat().st_size if live.exists() else 0
    if size:
        with live.open("ab") as file:
            file.write(b"uncommitted\n")

    def content() -> object:
        return size and scene.partition.files(), store.exists() and store.read_bytes()

    before = content()
    with pytest.raises(ConfigurationError, match=f"partition 0: .*{says}") as raised:
        scene.partition.take_over()
    if "offsets adopt" in str(raised.value):
        assert not isinstance(scene.partition.run(5, 2), Done)

    assert "\n" not in str(raised.value)
    assert raised.value.code == Exit.CONFIGURATION
    assert content() == before
    if size:
        os.truncate(live, size)


@pytest.mark.parametrize(("happens", "says", "mend", "holds"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_reported_and_no_line_is_lost_or_repeated(
    scene: Scene,
    happens: Callable[[Scene], object],
    says: str | None,
    mend: str | None,
    holds: bytes | None,
) -> None:
    happens(scene)

    if says:
        refused(scene, says)
    if mend:
        mended = scene.offsets(*mend.split())
        assert mended.exit_code == 0, (mended.output, mended.exception)
    if holds:
        scene.partition.start()
        assert scene.partition.read("web01") == holds


COMMANDS = {
    "entry": [ALL],
    "entry garbled": [ALL],
    "KV ahead": [ALL, OLD],
    "KV behind": [ALL, ALL],
    "store removed": [ALL],
    "stream recreated": [ALL],
}
"""What a host's file holds after each of the commands that a message names, as it is."""


@pytest.mark.parametrize(
    ("case", "chosen", "holds"),
    [(case, n, holds) for case, each in COMMANDS.items() for n, holds in enumerate(each)],
)
def test_a_command_that_a_message_names_works_as_it_is(
    logs_url: str, tmp_path: Path, case: str, chosen: int, holds: bytes
) -> None:
    config = tmp_path / "a receiver's.toml"
    config.write_text(f'server = "{logs_url}"\n')
    template = "{host}/all.log"
    scene = make_scene(Partition(logs_url, tmp_path / "to {0}", template=template), tmp_path)
    DAMAGES[case][0](scene)
    partition = scene.partition
    folders = {"output": partition.output, "state_dir": partition.state, "path_template": template}
    settings = settings_from_options(ReceiverSettings, {"config": config, **folders})

    async def examine(connection: Connection) -> None:
        layout, now = await require_layout(connection), datetime.now(UTC)  # noqa: TID251 - unused
        await make_claim(settings, layout, 0, connection).examine(now)

    with pytest.raises(Damaged) as raised:
        partition.ask(examine)
    commands = re.findall("`logreceiver ([^`]*)`", str(raised.value))
    done = CliRunner().invoke(logreceiver, [*shlex.split(commands[chosen]), "--yes"])

    assert len(commands) == len(COMMANDS[case])
    assert done.exit_code == 0, (commands, done.output, done.exception)
    partition.start()
    files = sorted(partition.output.glob("web01/all*"), reverse=True)  # closed ones first
    assert b"".join(file.read_bytes() for file in files) == holds


def test_a_receiver_moved_with_its_files_goes_on(scene: Scene, tmp_path: Path) -> None:
    there = scene.partition.with_folder(tmp_path / "there")
    shutil.copytree(scene.partition.folder, there.folder, dirs_exist_ok=True)

    there.start()

    assert there.read("web01") == ALL


def test_adopting_twice_does_the_same_as_once(scene: Scene) -> None:
    forget_entry(scene)
    with (scene.partition.output / "web01.log").open("ab") as file:
        file.write(b"uncommitted\n")

    codes = [scene.offsets("adopt").exit_code for _ in range(2)]
    scene.partition.start()

    assert codes == [0, 0]
    assert scene.partition.read("web01") == ALL


def test_adopting_needs_an_offset_and_no_running_receiver(scene: Scene) -> None:
    with exclusive_lock(scene.partition.state / "p0.lock", 0):
        locked = scene.offsets("adopt")
    forget_entry(scene)
    scene.partition.store.unlink()
    unknown = scene.offsets("adopt")

    assert isinstance(locked.exception, OperatorError)
    assert "a receiver is running there" in str(locked.exception)
    assert isinstance(unknown.exception, ConfigurationError)
    assert "offsets set --partition 0 --to earliest" in str(unknown.exception)
