"""Following files: what is read, from where on, and what is said."""

from shipper.tail.notices import NoticeKind
from tests.shipper.host import Host
from tests.shipper.tail.conftest import MakeHost

LEAST_SHARE = 256 * 1024


async def test_a_gathering_keeps_to_its_budget_and_is_fair(make_host: MakeHost) -> None:
    host = make_host("*.log", block_size=1000)
    host.write("flood.log", b"x" * 99 + b"\n")
    for _ in range(10):
        host.write("flood.log", (b"x" * 99 + b"\n") * 1000)
    host.write("quiet.log", b"quiet\n")
    await host.look()

    blocks = await host.follower.gather(10_000)

    assert sum(len(block.lines) for block in blocks) <= 12_000
    assert b"quiet\n" in [block.lines for block in blocks]


async def test_a_gathering_takes_the_line_of_every_file_although_there_are_many(
    make_host: MakeHost,
) -> None:
    host = make_host("*.log")
    expected = {b"a line of file %02d\n" % number for number in range(50)}
    for number, line in enumerate(sorted(expected)):
        host.write(f"{number:02}.log", line)
    await host.look()

    blocks = await host.follower.gather(LEAST_SHARE // 4)

    assert len(blocks) == 50
    assert {block.lines for block in blocks} == expected


async def test_a_missing_file_is_said_once_and_again_when_it_goes_missing_again(host: Host) -> None:
    await host.look()
    await host.look()
    assert len(host.said(NoticeKind.MISSING)) == 1

    host.write("app.log", b"1\n")
    await host.ship()
    (host.folder / "app.log").unlink()
    await host.look()

    assert len(host.said(NoticeKind.MISSING)) == 2
