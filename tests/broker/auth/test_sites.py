"""A site copies streams, and reaches neither other sites nor the broker."""

from collections.abc import Iterator

import pytest

from tests import secured
from tests.broker.auth.oracle import everything
from tests.broker.auth.test_rights import COPY
from tests.raw import Leaf, Raw
from tests.secured import OWN, SITE, Secured
from tests.support.processes import Processes, wait_until

pytestmark = pytest.mark.nats

ASK = f"SITE.{SITE}.API.CONSUMER.CREATE.LOGS"
REQUEST = {"stream_name": "LOGS", "config": COPY}
FROM_AWAY = {"name": "LOGS", "external": {"api": "SITE.away.API", "deliver": "SITE.away"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("sites")
    sites = [secured.site(name) for name in ("away", "other")]
    with Processes(folder) as processes:
        started = secured.start_secured(processes, folder, *sites)
        with Raw(started.port, OWN) as own:
            own.ask("logs.p0.web01", "a line")
        yield started


@pytest.fixture(scope="module")
def own(server: Secured) -> Iterator[Raw]:
    with Raw(server.port, OWN) as client:
        yield client


@pytest.mark.parametrize(
    "reply",
    [
        "$KV.LOGS_OFFSETS.p0",
        "logs.p0.web02",
        "$JS.API.STREAM.PURGE.LOGS",
        "_INBOX.x",
        f"SITE.{SITE}.S.x",
        "",
    ],
)
def test_no_answer_reaches_a_subject_of_the_broker(server: Secured, own: Raw, reply: str) -> None:
    before = everything(own)

    with Leaf(server.leaf_port, "away") as leaf:
        leaf.publish(ASK, b"{}", reply)
        leaf.ask(ASK, {})  # which is answered after the one before

    assert everything(own) == before


def test_a_copy_arrives_and_leaves_no_consumer(server: Secured, own: Raw) -> None:
    before = everything(own)

    with Leaf(server.leaf_port, "away") as leaf:
        leaf.subscribe(COPY["deliver_subject"])
        heard = leaf.ask(ASK, REQUEST)
        come = list(heard.messages)

        def has_come() -> bool:
            come.extend(leaf.send(b"").messages)
            return (COPY["deliver_subject"], b'"a line"') in come

        wait_until("the line comes", has_come, 30, [server.process])

    wait_until("the consumer is gone", lambda: everything(own) == before, 30, [server.process])


def test_a_site_receives_nothing_but_copies(server: Secured, own: Raw) -> None:
    with Leaf(server.leaf_port, "away") as leaf:
        errors = [leaf.subscribe(subject).errors for subject in (">", "logs.>", "SITE.>", "$KV.>")]
        own.ask("logs.p0.web01", "another line")
        own.ask("$KV.LOGS_OFFSETS.p1", "an offset")
        heard = leaf.ask(ASK, {})

    assert not any(errors)  # a leaf node's subscription is reduced to its rights
    assert {subject for subject, _ in heard.messages} == {"$JSC.R.answer"}


def test_a_site_neither_receives_nor_answers_requests_to_another_site(
    server: Secured, own: Raw
) -> None:
    config = own.ask("$JS.API.STREAM.INFO.LOGS")["config"]
    asked = "SITE.away.API.CONSUMER.CREATE.LOGS"

    with Leaf(server.leaf_port, "away") as away, Leaf(server.leaf_port, "other") as other:
        away.subscribe(asked)
        for subject in (">", "SITE.>", "SITE.*.API.>"):
            other.subscribe(subject)
        own.ask("$JS.API.STREAM.UPDATE.LOGS", {**config, "sources": [FROM_AWAY]})
        heard = list[str]()

        def is_asked() -> bool:
            heard.extend(subject for subject, _ in away.send(b"").messages)
            return bool(heard)

        wait_until("it is asked for a copy", is_asked, 30, [server.process])
        overheard = other.send(b"").messages
        own.ask("$JS.API.STREAM.UPDATE.LOGS", config)

    assert set(heard) == {asked}  # a server may ask again
    assert not overheard
    with Leaf(server.leaf_port, "other") as other:
        assert other.subscribe(asked).is_over
    with Leaf(server.leaf_port, "other") as other:
        assert other.publish("SITE.away.S.x", b"a line").is_over
