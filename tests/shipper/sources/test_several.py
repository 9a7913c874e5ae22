"""Several sources as one."""

import time
from itertools import pairwise
from pathlib import Path

from nats_logship.wire.message import Identity
from nats_logship.wire.positions import Cursor, Positions
from shipper.sources.acknowledged import Acknowledged
from shipper.sources.journal.rules import Options
from shipper.sources.journal.source import JournalSource
from shipper.sources.several import Sources
from tests.shipper.host import Host


async def test_no_line_of_another_source_comes_between_the_pieces_of_an_over_long_one(
    tmp_path: Path,
) -> None:
    sources, hosts = Sources(), []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        hosts.append(Host(tmp_path / name, max_line=1000, block_size=1000, is_only=False))
        hosts[-1].write("app.log", b"x" * 500_000 + b"\n" + b"short\n" * 1000)
        sources.add(hosts[-1].follower)
    await sources.rewind({})
    await sources.scan()

    gathered = []
    while blocks := await sources.gather(2000):
        gathered += blocks
    await sources.close()

    for before, after in pairwise(gathered):
        if after.continues:
            assert before.section.span.end == after.section.span.start
            assert before.section.path == after.section.path
    assert sum(block.continues for block in gathered) == 2 * 500
    first = {block.section.path: number for number, block in reversed([*enumerate(gathered)])}
    assert sorted(first.values())[1] < 600, "the second source waits for the end of the first"


async def test_old_files_are_forgotten_while_a_journal_has_trouble_which_keeps_its_own(
    tmp_path: Path,
) -> None:
    host, sources, acknowledged = Host(tmp_path, is_only=False), Sources(), Acknowledged()
    folder = str(tmp_path / "absent")
    journal = JournalSource(Options("journal", folder), lambda: "new", time.time_ns, sources.wake)
    sources.add(host.follower)
    sources.add(journal)
    identity = Identity(0, 0, "", 0, "")
    cursors = (
        Cursor("file", str(tmp_path / "gone.log"), 5, identity, 1),
        Cursor("unread", str(tmp_path / "gone.log"), 0, identity, 1),
        Cursor("read", "journal", 5, identity, 1, unit="entries"),
        Cursor("found", "journal", 0, identity, 1, unit="entries"),
    )
    acknowledged.positions = Positions({one.file: one for one in cursors})

    await sources.rewind(acknowledged.positions.files)
    await acknowledged.forget_gone(sources, time.time_ns())
    before = set(acknowledged.positions.files)
    await sources.scan()
    acknowledged.add_found(sources)
    await acknowledged.forget_gone(sources, time.time_ns())
    await sources.close()

    assert journal.troubles
    assert before == {"file", "unread", "read", "found"}
    assert set(acknowledged.positions.files) == {"read", "found"}


async def test_an_agent_without_journal_forgets_only_journals_that_have_ended(
    tmp_path: Path,
) -> None:
    host, acknowledged = Host(tmp_path), Acknowledged()
    identity = Identity(0, 0, "", 0, "")
    journals = [
        Cursor(f"{ended}", "journal", 5, identity, 1, ended=ended, unit="entries")
        for ended in (True, False)
    ]
    acknowledged.positions = Positions({one.file: one for one in journals})
    await host.follower.rewind({})
    await host.follower.scan()

    await acknowledged.forget_gone(host.follower, time.time_ns())

    assert set(acknowledged.positions.files) == {"False"}
