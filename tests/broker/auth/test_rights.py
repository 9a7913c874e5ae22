"""Every kind of credential can do what the table of rights says, no more and no less."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from broker.auth.permissions import API
from broker.topology import Topology
from tests import secured
from tests.broker.auth import rights
from tests.broker.auth.oracle import answers, everything
from tests.raw import Answers, Leaf, Raw
from tests.secured import OWN, SITE, Secured
from tests.support.processes import Processes

pytestmark = pytest.mark.nats

WHO = {
    "web01": secured.host("web01"),
    "r0": secured.receiver("r0", 0),
    "all": secured.receiver("all"),
    "watch": secured.monitor("watch"),
    "ops": secured.admin("ops"),
    "away": secured.site("away"),
}
LINES = {
    "receiver-p1": "logs.p1.>",
    "shipper-web01": "logs.*.web01",
    "shipper-web02": "logs.*.web02",
}
LINES |= {"wake-p1-0": "logs.p1.>", "count-p0": "logs.p1.web01", "count-p1": "logs.p0.web02"}
COPY = {
    "name": "JS_SRC_x",
    "deliver_subject": f"SITE.{SITE}.S.x",
    "deliver_policy": "all",
    "ack_policy": "none",
    "max_deliver": 1,
    "flow_control": True,
    "idle_heartbeat": 1_000_000_000,
    "inactive_threshold": 10_000_000_000,
    "direct": True,
    "sourcing": True,
}


@dataclass(frozen=True)
class Try:
    """What is published: a call of the JetStream API, or another subject."""

    subject: str
    body: Any = None
    is_call: bool = True


def on_stream(stream: str, config: Mapping[str, Any], action: str) -> Try:
    calls = {
        "create": ("STREAM.CREATE.{}", {"name": stream, "subjects": ["mine"]}),
        "info": ("STREAM.INFO.{}", None),
        "get": ("STREAM.MSG.GET.{}", {"seq": 1}),
        "get several": ("DIRECT.GET.{}", {"seq": 1}),
        "copy": ("CONSUMER.CREATE.{}", {"stream_name": stream, "config": COPY}),
        "update": ("STREAM.UPDATE.{}", {**config, "description": "changed"}),
        "delete": ("STREAM.DELETE.{}", None),
        "purge": ("STREAM.PURGE.{}", None),
        "delete a message": ("STREAM.MSG.DELETE.{}", {"seq": 1}),
        "read its consumers": ("CONSUMER.LIST.{}", None),
        "name its consumers": ("CONSUMER.NAMES.{}", None),
        "step down": ("STREAM.LEADER.STEPDOWN.{}", None),
    }
    call, body = calls[action]
    return Try(call.format(stream), body)


def on_message(subject: str, action: str) -> Try:
    if action == "write":
        return Try(subject, {"written": True}, is_call=False)
    stream = f"KV_{subject.split('.')[1]}" if subject.startswith("$KV") else "LOGS"
    return Try(f"DIRECT.GET.{stream}.{subject}")


def on_consumer(name: str, action: str) -> Try:
    if action == "acknowledge":
        return Try(f"$JS.ACK.LOGS.{name}.1.1.1.1.0", is_call=False)
    calls = {
        "create": (f"CREATE.LOGS.{name}.{lines_of(name)}", request(name)),
        "update": (f"CREATE.LOGS.{name}.{lines_of(name)}", request(name, max_deliver=7)),
        "delete": (f"DELETE.LOGS.{name}", None),
        "pull": (f"MSG.NEXT.LOGS.{name}", {"batch": 1, "no_wait": True}),
        "info": (f"INFO.LOGS.{name}", None),
        "reset": (f"RESET.LOGS.{name}", None),
        "pause": (f"PAUSE.LOGS.{name}", {"pause_until": "2099-01-01T00:00:00Z"}),
    }
    call, body = calls[action]
    return Try(f"CONSUMER.{call}", body)


ON_ACCOUNT = {
    "info": Try("INFO"),
    "name streams": Try("STREAM.NAMES"),
    "list streams": Try("STREAM.LIST"),
    "ask the server": Try("$SYS.REQ.SERVER.PING.VARZ", is_call=False),
}


def lines_of(consumer: str) -> str:
    return LINES.get(consumer, "logs.p0.>")


def request(name: str, **more: Any) -> dict[str, Any]:
    config = {"name": name, "ack_policy": "explicit", "filter_subject": lines_of(name)}
    is_short_lived = name.startswith(("count-", "reader-", "shipper-", "wake-"))
    kept = {"inactive_threshold": 3_600_000_000_000} if is_short_lived else {"durable_name": name}
    return {"stream_name": "LOGS", "config": {**config, **kept, **more}}


@dataclass
class Arena:
    """A broker, made as it is at first whenever somebody has changed it."""

    server: Secured
    own: Raw
    state: Any = None
    without: str = ""
    """The name of the consumer that is not there."""

    def restore(self, without: str) -> None:
        """Make each message, and each consumer of the table but one, with a line in hand."""
        if self.state is not None and (without, everything(self.own)) == (self.without, self.state):
            return
        own = self.own
        for stream in own.ask("$JS.API.STREAM.NAMES")["streams"] or ():
            own.ask(f"$JS.API.STREAM.DELETE.{stream}")
        for configuration in Topology(partitions=2).streams():
            own.ask(f"$JS.API.STREAM.CREATE.{configuration['name']}", configuration)
        own.ask_all(*((row.object, {"first": True}) for row in rights.MESSAGES))
        own.ask_all(
            *(
                (f"$JS.API.CONSUMER.CREATE.LOGS.{name}.{lines_of(name)}", request(name))
                for name in self._consumers(without)
            )
        )
        for name in self._consumers(without):
            answers(own, own.publish(f"$JS.API.CONSUMER.MSG.NEXT.LOGS.{name}", b"1", "_INBOX.pull"))
        self.state, self.without = everything(own), without

    def _consumers(self, without: str) -> list[str]:
        return [row.object for row in rights.CONSUMERS if row.object != without]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("rights")
    with Processes(folder) as processes:
        server = secured.start_secured(processes, folder, *WHO.values())
        with Raw(server.port, OWN) as own:
            own.subscribe("_INBOX.pull")
            yield Arena(server, own)


def attempt(server: Secured, who: str, tried: Try) -> bool:
    """Whether somebody is answered without an error."""
    if who == "away":
        return any(attempt_from_site(server, one) for one in as_site(tried))
    prefix = "$JS.API" if who == "ops" else API
    subject = f"{prefix}.{tried.subject}" if tried.is_call else tried.subject
    inbox = f"_INBOX_{who}.x"
    with Raw(server.port, who) as client:
        client.subscribe(inbox)
        heard = client.publish(subject, payload_of(tried), inbox)
        while not (heard.errors or heard.messages or subject.startswith("$JS.ACK")):
            heard = client.send(b"")
        return is_done(heard)


def as_site(tried: Try) -> Iterator[Try]:
    """Yield the ways in which a site may try it."""
    if not tried.is_call:
        yield tried
        return
    for prefix in (f"SITE.{SITE}.API", "$JS.API", f"$JS.{SITE}.API", API):
        yield Try(f"{prefix}.{tried.subject}", tried.body)
    if tried.subject.startswith("CONSUMER.CREATE.LOGS."):
        config = tried.body["config"]
        for body in (config, {**config, **COPY, "name": config["name"]}, {**COPY, **config}):
            request = {"stream_name": "LOGS", "config": body}
            yield Try(f"SITE.{SITE}.API.CONSUMER.CREATE.LOGS", request)


def attempt_from_site(server: Secured, tried: Try) -> bool:
    with Leaf(server.leaf_port, "away") as leaf:
        leaf.subscribe("$JSC.R.x")
        heard = leaf.publish(tried.subject, payload_of(tried), "$JSC.R.x")
        if tried.subject.startswith("SITE.") and not heard.is_over:
            while not heard.messages:
                heard = leaf.send(b"")
        return is_done(heard)


def payload_of(tried: Try) -> bytes:
    return b"" if tried.body is None else json.dumps(tried.body).encode()


def is_done(received: Answers) -> bool:
    return bool(received.messages) and not any(
        b'"error"' in payload for _, payload in received.messages
    )


def who_can(arena: Arena, tried: Try, *, without: str = "") -> set[str]:
    """Return who is answered, or changes something."""
    able = set[str]()
    for who in WHO:
        arena.restore(without)
        if attempt(arena.server, who, tried) or everything(arena.own) != arena.state:
            able.add(who)
    return able


def cells(rows: tuple[rights.Row, ...]) -> list[Any]:
    return [
        pytest.param(row.object, action, who, id=f"{action} {row.object}")
        for row in rows
        for action, who in row.rights.items()
    ]


def named(who: str) -> set[str]:
    return {*who.split()} - {"-"}


@pytest.mark.parametrize(("stream", "action", "who"), cells(rights.STREAMS))
def test_rights_on_streams(arena: Arena, stream: str, action: str, who: str) -> None:
    arena.restore("")
    config = arena.own.ask(f"$JS.API.STREAM.INFO.{stream}").get("config", {})

    assert who_can(arena, on_stream(stream, config, action)) == named(who)


@pytest.mark.parametrize(("subject", "action", "who"), cells(rights.MESSAGES))
def test_rights_on_messages(arena: Arena, subject: str, action: str, who: str) -> None:
    assert who_can(arena, on_message(subject, action)) == named(who)


@pytest.mark.parametrize(("name", "action", "who"), cells(rights.CONSUMERS))
def test_rights_on_consumers(arena: Arena, name: str, action: str, who: str) -> None:
    without = name if action == "create" else ""

    assert who_can(arena, on_consumer(name, action), without=without) == named(who)


@pytest.mark.parametrize("action", ON_ACCOUNT)
def test_rights_on_the_account(arena: Arena, action: str) -> None:
    assert who_can(arena, ON_ACCOUNT[action]) == named(rights.ACCOUNT.rights[action])
