"""The content of a broker, and the errors in its server's log."""

from logging import ERROR
from typing import Any

from broker.server.process import parse_log_line
from tests.raw import Answers, Raw
from tests.secured import Secured
from tests.support.processes import wait_until

OWN_LINE = "logs.p0.web01"


def everything(own: Raw) -> dict[str, Any]:
    """Return all that the broker holds: streams with messages, consumers with their state."""
    found: dict[str, Any] = {}
    for stream in own.ask("$JS.API.STREAM.LIST")["streams"]:
        name, state = stream["config"]["name"], stream["state"]
        numbers = range(state["first_seq"], state["last_seq"] + 1)
        listed, *messages = own.ask_all(
            (f"$JS.API.CONSUMER.LIST.{name}", None),
            *((f"$JS.API.STREAM.MSG.GET.{name}", {"seq": n}) for n in numbers),
        )
        consumers = listed.get("consumers") or []
        for consumer in consumers:
            consumer.pop("ts")
            consumer.pop("num_waiting", None)  # a pull of a client that has gone stays for 2 s
        found[name] = [stream["config"], state, messages, consumers]
    return found


def of_others(found: dict[str, Any]) -> dict[str, Any]:
    """Return configurations, messages except those of `OWN_LINE`, and configured consumers."""
    return {
        name: [
            config,
            [one for one in messages if one.get("message", {}).get("subject") != OWN_LINE],
            [consumer["config"] for consumer in consumers],
        ]
        for name, (config, _, messages, consumers) in found.items()
    }


def wait_until_logged(server: Secured, who: str, text: str) -> None:
    """Wait until the server's log has an error about a user with a text."""

    def is_logged() -> bool:
        lines = (parse_log_line(line) for line in server.read_log().splitlines() if text in line)
        return any(f"user:{who}" in one.text and one.level == ERROR for one in lines)

    wait_until("the denial is logged", is_logged, 30, [server.process])


def answers(client: Raw, *received: Answers) -> list[tuple[str, bytes]]:
    """Return all messages, as subject and payload, once there is one."""
    found = [message for one in received for message in one.messages]

    def is_answered() -> bool:
        found.extend(client.send(b"").messages)
        return bool(found)

    wait_until("it is answered", is_answered, 30, [])
    return found
