"""What the tests of files share: hosts in the test's folder, whose followers are closed."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.shipper.host import Host

MakeHost = Callable[..., Host]


@pytest.fixture
async def make_host(tmp_path: Path) -> AsyncIterator[MakeHost]:
    """Return a function that makes a host with the patterns and options given."""
    hosts: list[Host] = []

    def make(*patterns: str, **options: object) -> Host:
        hosts.append(Host(tmp_path, *patterns, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        await host.follower.close()


@pytest.fixture
def host(make_host: MakeHost) -> Host:
    """Return a host that follows app.log."""
    return make_host()
