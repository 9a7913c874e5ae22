"""Messages that no shipper of ours sent, and names that mean harm."""

from pathlib import Path

import pytest

from broker.wire.subjects import Subject
from tests.support.processes import wait_until
from tests.support.received import read_received
from tests.support.stage import Stage

pytestmark = [pytest.mark.journey, pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(360)]


def publish(stage: Stage, host: str, payload: bytes) -> None:
    subject = Subject.for_host(host, 2)
    stage.suite.publish(str(subject), payload)


def test_lines_of_a_plain_nats_client_are_received_and_finished(stage: Stage) -> None:
    publish(stage, "plain01", b"hello")
    publish(stage, "plain01", b"two\nlines\n")
    publish(stage, "plain01", "zażółć gęślą".encode())

    expected = "hello\ntwo\nlines\nzażółć gęślą\n".encode()
    wait_until("it is received", lambda: stage.received_size("plain01") >= len(expected), 60)

    assert read_received(stage.suite.output, "plain01") == expected


@pytest.mark.parametrize("host", ["/etc/cron.d/x", "web\x01"], ids=ascii)
def test_a_hostile_subject_is_set_aside_and_writes_nothing_elsewhere(
    stage: Stage, host: str
) -> None:
    quarantine = stage.suite.output / ".quarantine"
    before = contents(stage.suite.folder)

    sequence = stage.suite.publish(f"logs.p0.{host}", b"what a hostile client sends\n")

    def is_set_aside() -> bool:
        kept = quarantine.glob(f"*-{sequence:012d}.msg")
        return any(b"what a hostile client sends\n" in one.read_bytes() for one in kept)

    wait_until("it is set aside", is_set_aside, 60)
    gone_on = stage.received_size("after01")
    publish(stage, "after01", b"and the next host goes on\n")
    wait_until("others go on", lambda: stage.received_size("after01") > gone_on, 60)

    added = {path for path in contents(stage.suite.folder) - before if "store" not in path.parts}
    elsewhere = {path for path in added if not path.is_relative_to(stage.suite.output)}
    assert {path for path in elsewhere if stage.suite.folder / "state" not in path.parents} == set()
    assert not [path for path in added if path.name in {"b", "x", "b.log", "x.log"}]
    assert stage.receiver.is_running()


def contents(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))
