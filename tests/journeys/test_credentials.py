"""A host, a receiver and an admin do their work with nothing but the files of their credentials."""

from collections.abc import Iterator

import pytest

from tests.journeys.site import Site
from tests.support.processes import Processes, wait_until

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(360)]

LINES = [b"line %d of web01\n" % number for number in range(30_000)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    with Processes(folder) as programs:
        yield Site(folder, programs)


def test_files_of_credentials_suffice_to_ship_receive_and_look_while_others_are_given(
    site: Site,
) -> None:
    folder = site.folder
    site.credentials("add", "host", "web01")
    site.credentials("add", "receiver", "all")
    receiver = site.start(
        "receiver",
        "receiver",
        "--config",
        folder / "receiver-all.toml",
        "--output",
        folder / "out",
    )
    shipper = site.ship("web01", "host-web01.toml")

    # a server that reads its settings anew loses an answer now and then, and a start waits for each
    wait_until("it ships", lambda: "ships on" in shipper.said(), 60, [shipper])
    with (folder / "app.log").open("ab", buffering=0) as log:
        for number in range(10):
            log.write(b"".join(LINES[number * 3000 : (number + 1) * 3000]))
            site.credentials("add", "host", f"other{number}")
    site.credentials("rotate", "host", "web01", "--force")
    received = folder / "out" / "web01.log"
    wait_until(
        "every line is received",
        lambda: received.exists() and received.stat().st_size >= sum(map(len, LINES)),
        150,
        [receiver, shipper],
    )

    assert received.read_bytes() == b"".join(LINES)
    status = site.start("status", "broker", "status", "--config", folder / "admin-ops.toml")
    assert status.wait(60) == 0
    assert "hosts   1" in status.said()
    assert (shipper.stop(10), receiver.stop(20)) == (0, 0)
    assert "waiting" not in shipper.said()
    assert "permissions violation" not in receiver.said() + status.last_words()
