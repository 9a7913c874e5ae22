"""Nobody does what it has no right to: each attempt is denied to its face, told in the server's log, and changes nothing."""

import os
import signal
from pathlib import Path

import pytest

from broker.auth.permissions import API
from nats_logship.wire.pause import PAUSE_SUBJECT
from tests import secured
from tests.broker.auth.forbidden import IDENTITIES, PUBLISHED, SUBSCRIBED
from tests.broker.auth.oracle import answers, everything, is_reported
from tests.raw import Raw
from tests.secured import OWN, Secured
from tests.support.processes import Processes, wait_until

pytestmark = pytest.mark.nats


@pytest.mark.parametrize(
    ("who", "subject"),
    [pytest.param(who, one, id=f"{who} {one}") for who in PUBLISHED for one in PUBLISHED[who]],
)
def test_a_publish_without_the_right_to_it_is_denied_and_reported(
    server: Secured, own: Raw, who: str, subject: str
) -> None:
    before = everything(own)

    with Raw(server.port, who) as client:
        heard = client.publish(subject, b'{"seq": 1}', f"_INBOX_{who}.x")

    assert heard.errors == (f'Permissions Violation for Publish to "{subject}"',)
    assert not heard.messages
    is_reported(server, who, f'Publish Violation - Subject "{subject}"')
    assert everything(own) == before


@pytest.mark.parametrize(
    ("who", "subject"),
    [pytest.param(who, one, id=f"{who} {one}") for who in SUBSCRIBED for one in SUBSCRIBED[who]],
)
def test_a_subscription_without_the_right_to_it_is_denied_and_reported_also_in_a_queue(
    server: Secured, who: str, subject: str
) -> None:
    with Raw(server.port, who) as client, Raw(server.port, "web02") as other:
        heard = [client.subscribe(subject, queue) for queue in ("", "crowd")]
        other.publish("$SYS.REQ.USER.INFO", b"", "_INBOX_web02.x")
        after = client.send(b"")

    assert [error.split('"')[1] for one in heard for error in one.errors] == [subject, subject]
    assert not any(one.messages for one in (*heard, after))
    is_reported(server, who, f'Subscription Violation - Subject "{subject}"')


@pytest.mark.parametrize(
    ("user", "password"),
    [
        pytest.param("", "", id="nobody"),
        pytest.param("web01", "wrong", id="a wrong password"),
        pytest.param("web99", "web99", id="a host that is not known"),
        pytest.param("SYS", "SYS", id="an account's name"),
        pytest.param("*", "*", id="a wildcard"),
    ],
)
def test_who_has_no_credential_is_not_let_in(
    server: Secured, own: Raw, user: str, password: str
) -> None:
    before = everything(own)

    with Raw(server.port, user, password) as client:
        heard = client.greeting
        client.publish("logs.p0.web01", b"a line")

    assert heard.errors == ("Authorization Violation",)
    assert heard.is_over
    wait_until("it is reported", lambda: "authentication error" in server.said(), 30, [])
    assert everything(own) == before


def test_an_admin_asks_the_server_and_changes_nothing_about_it(server: Secured) -> None:
    with Raw(server.port, "ops") as client:
        told = client.ask("$SYS.REQ.SERVER.PING.VARZ")
        client.subscribe("$SYS.ACCOUNT.>")
        name = told["server"]["id"]
        for call in ("RELOAD", "KICK", "LDM"):
            client.publish(f"$SYS.REQ.SERVER.{name}.{call}", b'{"cid": 1}', "_INBOX.x")
        with Raw(server.port, "web02"):
            wait_until(
                "it hears of who comes",
                lambda: any("SHIP.CONNECT" in subject for subject, _ in client.send(b"").messages),
                30,
                [],
            )

    assert told["data"]["jetstream"]["config"]["store_dir"]
    assert "Reloaded" not in server.said()


def test_an_admin_pauses_hosts_and_each_of_them_hears_it(server: Secured) -> None:
    with Raw(server.port, "web01") as host, Raw(server.port, "ops") as admin:
        host.subscribe(PAUSE_SUBJECT)
        stored = admin.ask(PAUSE_SUBJECT, "[]")
        heard = answers(host)

    assert stored["stream"] == "KV_LOGS_CONFIG"
    assert [subject for subject, _ in heard] == [PAUSE_SUBJECT]


def test_who_is_revoked_is_sent_away_and_nobody_else(processes: Processes, tmp_path: Path) -> None:
    server = secured.start_secured(processes, tmp_path, *IDENTITIES)
    with Raw(server.port, "web01") as revoked, Raw(server.port, "web02") as other:
        secured.write_conf(server.conf, server.port, *IDENTITIES[1:], leaf_port=server.leaf_port)
        os.kill(server.process.pid, signal.SIGHUP)

        wait_until("it is sent away", lambda: revoked.send(b"").is_over, 30, [server.process])
        assert not other.publish("logs.p0.web02", b"a line").is_over
    for subject in ("logs.p0.web01", f"{API}.DIRECT.GET.LOGS.logs.p0.web01", "$SYS.REQ.USER.INFO"):
        with Raw(server.port, "web01") as again:
            assert again.greeting.errors == ("Authorization Violation",)
            assert again.publish(subject, b"", "_INBOX_web01.x").is_over
    with Raw(server.port, OWN) as own:
        assert own.ask("$JS.API.STREAM.INFO.LOGS")["state"]["last_seq"] == 1
