"""A client without a right gets an error, the log names the client, and nothing changes."""

import pytest

from tests.broker.auth.forbidden import PUBLISHED, SUBSCRIBED
from tests.broker.auth.oracle import everything, wait_until_logged
from tests.raw import Raw
from tests.secured import Secured
from tests.support.processes import wait_until

pytestmark = pytest.mark.nats


@pytest.mark.parametrize(
    ("who", "subject"),
    [pytest.param(who, one, id=f"{who} {one}") for who in PUBLISHED for one in PUBLISHED[who]],
)
def test_a_publish_without_a_right_is_denied_and_logged(
    server: Secured, own: Raw, who: str, subject: str
) -> None:
    before = everything(own)

    with Raw(server.port, who) as client:
        heard = client.publish(subject, b'{"seq": 1}', f"_INBOX_{who}.x")

    assert heard.errors == (f'Permissions Violation for Publish to "{subject}"',)
    assert not heard.messages
    wait_until_logged(server, who, f'Publish Violation - Subject "{subject}"')
    assert everything(own) == before


@pytest.mark.parametrize(
    ("who", "subject"),
    [pytest.param(who, one, id=f"{who} {one}") for who in SUBSCRIBED for one in SUBSCRIBED[who]],
)
def test_a_subscription_without_a_right_is_denied_and_logged(
    server: Secured, who: str, subject: str
) -> None:
    with Raw(server.port, who) as client, Raw(server.port, "web02") as other:
        heard = [client.subscribe(subject, queue) for queue in ("", "crowd")]
        other.publish("$SYS.REQ.USER.INFO", b"", "_INBOX_web02.x")
        after = client.send(b"")

    assert [error.split('"')[1] for one in heard for error in one.errors] == [subject, subject]
    assert not any(one.messages for one in (*heard, after))
    wait_until_logged(server, who, f'Subscription Violation - Subject "{subject}"')


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
def test_a_client_without_a_credential_is_refused(
    server: Secured, own: Raw, user: str, password: str
) -> None:
    before = everything(own)

    with Raw(server.port, user, password) as client:
        heard = client.greeting
        client.publish("logs.p0.web01", b"a line")

    assert heard.errors == ("Authorization Violation",)
    assert heard.is_over
    wait_until("it is reported", lambda: "authentication error" in server.read_log(), 30, [])
    assert everything(own) == before


def test_an_admin_asks_the_server_and_cannot_change_it(server: Secured) -> None:
    with Raw(server.port, "ops") as client:
        answer = client.ask("$SYS.REQ.SERVER.PING.VARZ")
        client.subscribe("$SYS.ACCOUNT.>")
        name = answer["server"]["id"]
        for call in ("RELOAD", "KICK", "LDM"):
            client.publish(f"$SYS.REQ.SERVER.{name}.{call}", b'{"cid": 1}', "_INBOX.x")
        with Raw(server.port, "web02"):
            wait_until(
                "it receives the event",
                lambda: any("SHIP.CONNECT" in subject for subject, _ in client.send(b"").messages),
                30,
                [],
            )

    assert answer["data"]["jetstream"]["config"]["store_dir"]
    assert "Reloaded" not in server.read_log()
