"""A fleet is paused while lines flow and programs die: nothing is published meanwhile, and every line is received once."""

import time

import pytest

from tests.support.processes import wait_until
from tests.support.stage import Stage
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(360)]

HOSTS = ("pause01", "pause02")


def test_every_line_of_a_pause_is_received_once_through_kills_and_a_restart_of_the_broker(
    stage: Stage,
) -> None:
    files = {host: stage.host_folder(host) / "app.log" for host in HOSTS}
    suite = stage.suite
    with Traffic(list(files.values()), 200) as traffic:
        shippers = [suite.start_shipper(host, [file]) for host, file in files.items()]
        wait_until("lines flow", lambda: all(map(stage.received_size, HOSTS)), 90, shippers)
        suite.administer("pause", "pause0*", "--reason", "broker is moved")
        have_heard = lambda: all("paused until" in one.said() for one in shippers)  # noqa: E731
        wait_until("all are paused", have_heard, 60, shippers)
        time.sleep(2)  # within which a round under way has come
        before = suite.last_sequence()
        shippers[0].kill()
        stage.broker.kill()
        stage.broker.start()
        shippers[0].start()
        suite.wait_for_broker(stage.broker)
        traffic.rotate(files[HOSTS[1]])
        time.sleep(2)  # it would have begun to ship by then
        after = suite.last_sequence()
        suite.administer("resume")

    assert after == before > 0
    for host, file in files.items():
        verdict = stage.verdict(host, [traffic.written[file]])
        assert verdict.is_perfect, f"{host}: {verdict}"
