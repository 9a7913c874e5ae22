"""Several sources as one."""

from itertools import pairwise
from pathlib import Path

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
