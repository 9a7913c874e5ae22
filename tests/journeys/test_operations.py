"""A fleet is paused, a broker is set back to a backup: no line is lost or comes twice."""

from pathlib import Path

import pytest

from nats_logship.wire.subjects import Subject
from tests.support.oracle import expect_all
from tests.support.processes import wait_until
from tests.support.suite import Suite
from tests.support.traffic import Traffic

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(540)]

HOSTS = ("pause01", "pause02")


def messages_after_another_shipper(suite: Suite) -> dict[str, int]:
    """Return the messages of each paused host, after a host that is not paused has shipped."""
    other = suite.folder / "other.log"
    with other.open("a") as log:
        log.write("a line\n")
    shipper = suite.start_shipper("other", [other], "--once")
    assert shipper.wait(60) == 0, shipper.last_output()
    subjects = suite.stream()["state"]["subjects"]
    return {host: subjects.get(str(Subject.for_host(host, 2)), 0) for host in HOSTS}


def test_a_pause_and_a_backup_that_is_restored_cost_no_line_and_repeat_none(
    suite: Suite, tmp_path: Path
) -> None:
    # a restoration drops what is not committed, so here lines are committed as they come
    suite.start_receiver([0, 1], "--commit-every", "0")  # which waits for the broker
    broker = suite.start_broker()
    files = {host: suite.folder / "hosts" / host / "app.log" for host in HOSTS}
    with Traffic(list(files.values()), 200) as traffic:
        shippers = [suite.start_shipper(host, [file]) for host, file in files.items()]
        suite.wait_for_lines(HOSTS, shippers)
        suite.administer("pause", "pause0*", "--reason", "broker is moved")
        are_paused = lambda: all("paused until" in one.read_log() for one in shippers)  # noqa: E731
        wait_until("all are paused", are_paused, 60, shippers)
        before = messages_after_another_shipper(suite)
        shippers[0].kill()
        broker.kill()
        broker.start()
        shippers[0].start()
        suite.wait_for_broker(broker)
        traffic.rotate(files[HOSTS[1]])
        is_paused = lambda: shippers[0].read_log().count("paused until") > 1  # noqa: E731
        wait_until("it is paused again", is_paused, 60, shippers)
        after = messages_after_another_shipper(suite)
        suite.administer("resume")

    written = {host: [traffic.written[file]] for host, file in files.items()}
    assert after == before
    assert all(before.values())
    expect_all(suite.output, written)
    suite.administer("backup", str(tmp_path / "backup"))
    for word in (b"behind the backup", b"behind its restoration"):
        for host, file in files.items():
            lines = b"".join(b"%s %04d\n" % (word, number) for number in range(500))
            with file.open("ab") as log:
                log.write(lines)
            written[host] = [written[host][0] + lines]
        if word == b"behind the backup":
            shippers[0].kill()  # the backup has the lines of an older agent alone
            shippers[0].start()
        expect_all(suite.output, written)
        if word == b"behind the backup":
            suite.administer("restore", str(tmp_path / "backup"), "--replace", "--yes")
    assert [shipper.stop(10) for shipper in shippers] == [0, 0]
