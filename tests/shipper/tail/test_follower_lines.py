"""Lines that are unfinished or over-long: held, or shipped in pieces that stay together."""

import pytest

from tests.shipper.host import SECOND
from tests.shipper.tail.conftest import MakeHost


@pytest.mark.parametrize("budget", [500, 3000, 100_000])
async def test_nothing_comes_between_the_pieces_of_an_over_long_line(
    make_host: MakeHost, budget: int
) -> None:
    host = make_host("*.log", block_size=100, max_line=300)
    for name in ("a.log", "b.log", "c.log"):
        host.write(name, b"short\n" * 100 + name[:1].encode() * 4000 + b"\n" + b"short\n" * 100)
    await host.look()

    while blocks := await host.follower.gather(budget):
        host.blocks += blocks

    for name in (b"a", b"b", b"c"):
        assert name * 4000 + b"\n" in host.shipped


async def test_an_over_long_line_is_finished_first_after_a_restart(make_host: MakeHost) -> None:
    host = make_host("*.log", block_size=100, max_line=300)
    host.write("z.log", b"z" * 4000 + b"\n")
    await host.look()
    host.blocks += await host.follower.gather(1000)
    host.write("a.log", b"short\n")

    await host.restart()
    await host.ship()

    assert host.shipped == b"z" * 4000 + b"\n" + b"short\n"


async def test_a_line_without_end_does_not_keep_other_files_waiting(make_host: MakeHost) -> None:
    host = make_host("*.log", block_size=100, max_line=300)
    host.write("a.log", b"a" * 1000)
    host.write("b.log", b"short\n")
    await host.look()

    shipped = await host.gather()
    host.later += SECOND
    shipped += await host.gather()
    assert shipped == b"a" * 900 + b"short\n"

    host.write("c.log", b"c" * 100_000 + b"\n")
    await host.look()
    await host.follower.gather(1000)
    host.write("b.log", b"shorter\n")
    await host.look()
    await host.follower.gather(50_000)
    host.later += SECOND
    blocks = [block for _ in range(2) for block in await host.follower.gather(1000)]
    assert b"shorter\n" in [block.lines for block in blocks]
