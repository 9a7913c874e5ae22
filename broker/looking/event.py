"""Events of a NATS server and of JetStream in words: who came and went, who was refused, what changed. Decides only.

An event of a kind that is not known is shown with all that it says.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.app.printable import printable
from broker.app.sizes import format_size
from broker.app.untrusted import json_object

__all__ = ["SUBJECTS", "Event", "is_noise", "read"]

SUBJECTS = ("$JS.EVENT.ADVISORY.>", "$JS.EVENT.METRIC.>", "$SYS.ACCOUNT.>", "$SYS.SERVER.>")
"""What is listened to: advisories and samples of the account's own streams, and what SYS exports of the server's."""

_NOISE = frozenset({"api_audit", "account_connections", "statsz"})
_MOST_SHOWN = 300  # letters of what an unknown event says


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened; `time` is the server's (RFC 3339), `text` one line, `data` all that was said."""

    kind: str
    time: str
    server: str
    text: str
    subject: str
    data: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values; the keys stay."""
        return {
            "kind": self.kind,
            "time": self.time,
            "server": self.server,
            "text": self.text,
            "subject": self.subject,
            "event": self.data,
        }


def is_noise(event: Event) -> bool:
    """Whether it comes all the time and says little: each call of the API, and numbers that are told by the clock."""
    return event.kind in _NOISE


def read(subject: str, payload: bytes, now: str) -> Event:
    """Return what a message on one of the subjects tells; `now` is when it came, for one that does not say."""
    data = json_object(payload)
    if data is None:
        data = {"payload": payload.decode("utf-8", "replace")} if payload else {}
    kind = _kind(subject, data)
    words = _WORDS.get(kind, _unknown)
    return Event(
        kind=kind,
        time=_text(data.get("timestamp") or _of(data, "server").get("time") or now),
        server=_text(_of(data, "server").get("name") or data.get("server") or ""),
        text=printable(words(data)),
        subject=subject,
        data=data,
    )


def _kind(subject: str, data: Mapping[str, Any]) -> str:
    tokens = subject.split(".")
    if subject.endswith(".CLIENT.AUTH.ERR"):
        return "auth_error"  # of the same type as a disconnect
    if isinstance(kind := data.get("type"), str) and kind:
        return kind.rpartition(".")[2]
    return tokens[-1].lower()


def _of(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _client(data: Mapping[str, Any]) -> str:
    client = _of(data, "client")
    name = client.get("name") or f"client {client.get('id', '?')}"
    user = client.get("user") or client.get("nkey") or client.get("name_tag")
    told = [str(name), *([f"as {user}"] if user else [])]
    if account := client.get("acc"):
        told.append(f"of account {account}")
    if host := client.get("host"):
        told.append(f"from {host}")
    return " ".join(told)


def _connected(data: Mapping[str, Any]) -> str:
    client = _of(data, "client")
    program = " ".join(str(client[key]) for key in ("lang", "ver") if client.get(key))
    return f"{_client(data)} connected{f' ({program})' if program else ''}"


def _disconnected(data: Mapping[str, Any]) -> str:
    sent, received = _of(data, "sent"), _of(data, "received")
    return (
        f"{_client(data)} disconnected: {data.get('reason') or 'no reason given'}"
        f" (sent {_traffic(received)}, was sent {_traffic(sent)})"
    )


def _traffic(counted: Mapping[str, Any]) -> str:
    size = counted.get("bytes")
    return f"{counted.get('msgs', 0)} messages, {format_size(size if isinstance(size, int) else 0)}"


def _refused(data: Mapping[str, Any]) -> str:
    return f"{_client(data)} was refused: {data.get('reason') or 'no reason given'}"


def _changed(what: str) -> Callable[[Mapping[str, Any]], str]:
    done = {"create": "was made", "delete": "was deleted", "modify": "was changed"}

    def words(data: Mapping[str, Any]) -> str:
        action = data.get("action")
        return f"{what} {_name(data)} {done.get(str(action), str(action))}"

    return words


def _name(data: Mapping[str, Any]) -> str:
    return ".".join(str(data[key]) for key in ("stream", "consumer") if data.get(key))


def _leader(what: str) -> Callable[[Mapping[str, Any]], str]:
    def words(data: Mapping[str, Any]) -> str:
        name = _name(data) or data.get("cluster", "")
        return f"{data.get('leader') or 'nobody'} leads {what} {name}".rstrip()

    return words


def _quorum_lost(data: Mapping[str, Any]) -> str:
    return f"{_name(data)} has lost its quorum: too few of its servers can be reached"


def _done(what: str) -> Callable[[Mapping[str, Any]], str]:
    def words(data: Mapping[str, Any]) -> str:
        error = data.get("error")
        return f"{what} of stream {_name(data)}{f' failed: {error}' if error else ''}"

    return words


def _at(what: str) -> Callable[[Mapping[str, Any]], str]:
    def words(data: Mapping[str, Any]) -> str:
        reason = data.get("reason")
        place = f" at message {data['stream_seq']}" if "stream_seq" in data else ""
        return f"{_name(data)} {what}{place}{f': {reason}' if reason else ''}".strip()

    return words


def _acknowledged(data: Mapping[str, Any]) -> str:
    took = data.get("ack_time")
    after = f" {took / 1e6:.1f} ms after its delivery" if isinstance(took, int) else ""
    return f"{_name(data)} was acknowledged message {data.get('stream_seq', '?')}{after}"


def _server(what: str) -> Callable[[Mapping[str, Any]], str]:
    def words(data: Mapping[str, Any]) -> str:
        name = _of(data, "server").get("name") or data.get("server") or "a server"
        return f"{name} {what}"

    return words


def _unknown(data: Mapping[str, Any]) -> str:
    told = {key: value for key, value in data.items() if key not in {"type", "id", "timestamp"}}
    text = json.dumps(told, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


_WORDS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "client_connect": _connected,
    "client_disconnect": _disconnected,
    "auth_error": _refused,
    "stream_action": _changed("stream"),
    "consumer_action": _changed("consumer"),
    "consumer_ack": _acknowledged,
    "consumer_pause": _at("was paused or goes on"),
    "stream_leader_elected": _leader("stream"),
    "consumer_leader_elected": _leader("consumer"),
    "domain_leader_elected": _leader("JetStream of"),
    "stream_quorum_lost": _quorum_lost,
    "consumer_quorum_lost": _quorum_lost,
    "stream_batch_abandoned": _at("let go of a batch that was not finished"),
    "snapshot_create": _done("a backup began"),
    "snapshot_complete": _done("a backup ended"),
    "restore_create": _done("a restore began"),
    "restore_complete": _done("a restore ended"),
    "max_deliver": _at("has delivered too often and gives up"),
    "nak": _at("was told that a message was not processed"),
    "terminated": _at("was told to deliver no more"),
    "server_out_of_space": _server("is out of space: nothing is stored"),
    "server_removed": _server("was removed from JetStream"),
    "lameduck": _server("sends its clients away before it ends"),
    "shutdown": _server("ends"),
}
