"""Answers of the broker: a result, an error, or nothing that can be relied on. Sends nothing.

Only the leader of a replicated stream knows what the stream holds. Other servers answer too while
there is no leader. A server that lost contact believes for 10 s and more that it is the leader,
while the others have elected another one.
"""

import json
from collections.abc import Mapping
from typing import Any

from nats_logship.client.error_codes import ErrorCode

_UNAVAILABLE = 503
_SERVER_ERROR = 500
_CONFIGURATION_ERRORS = {  # the server reports them as its own, but only a person can solve them
    ErrorCode.MEMORY_RESOURCES_EXCEEDED,
    ErrorCode.STORAGE_RESOURCES_EXCEEDED,
    ErrorCode.STREAM_INVALID_CONFIG,
    ErrorCode.STREAM_REPLICAS_NOT_SUPPORTED,  # replicas without a cluster
}
IN_TOUCH = 3.0
"""Seconds after which a replica in touch has stored what there was before."""
_MOST_LAG = 1_000  # entries, which came since
_LEASE = 2_500_000_000  # nanoseconds; no election begins within 4 s of contact with a leader


class ConnectionLost(Exception):
    """The connection was lost, or no answer came in time: the request may have been executed."""


class Rejected(Exception):
    """JetStream answered with an error; `error` is its `err_code`, or 0 without one."""

    def __init__(self, code: int, error: int, description: str) -> None:
        super().__init__(f"{description} ({code}/{error})")
        self.code, self.error, self.description = code, error, description
        # no subscriber: no JetStream, no such stream, or no leader
        self.is_nobody = code == _UNAVAILABLE and error == 0
        # perhaps the servers of a cluster are about to elect a leader
        self.is_leaderless = self.is_nobody or (
            code == _UNAVAILABLE and error == ErrorCode.CLUSTER_NOT_AVAIL
        )
        # too many messages wait for the stream: nothing was stored; try again at once
        self.is_busy = error == ErrorCode.STREAM_TOO_MANY_REQUESTS
        # a failure of the server, such as its disk: the same request may succeed later
        self.is_server_failure = self.is_busy or (
            code >= _SERVER_ERROR and error not in _CONFIGURATION_ERRORS
        )
        # the write expected another last sequence of its subject
        self.is_wrong_sequence = error == ErrorCode.STREAM_WRONG_LAST_SEQUENCE
        # another write of the subject, perhaps our own, is not complete: nothing was stored
        self.is_write_under_way = error == ErrorCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT
        self.is_conflict = self.is_wrong_sequence or self.is_write_under_way
        # there is no such stream or bucket
        self.is_absent = error == ErrorCode.STREAM_NOT_FOUND
        # the message is larger than the stream accepts
        self.is_too_large = error == ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM

    @property
    def remedy(self) -> str:
        """What a person can do, in one clause."""
        if self.is_absent:
            return "run `logbroker apply`"
        if self.is_leaderless:
            return "wait for the broker to start; if this lasts, run `logbroker apply`"
        return "see the broker's log and `logbroker check`"


class Denied(Rejected):
    """We have no right to publish or subscribe to a subject."""

    def __init__(self, violation: str) -> None:
        super().__init__(403, 0, f"{violation}; use a credential that has this right")

    @property
    def remedy(self) -> str:
        """What a person can do, in one clause."""
        return "`logbroker credentials list` shows the rights of each credential"


def parse_answer(data: bytes) -> dict[str, Any]:
    """Read an answer of JetStream; raises `Rejected`, and `ConnectionLost` for any other text."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ConnectionLost("the answer is not one of JetStream")
    if isinstance(failure := answer.get("error"), dict):
        raise Rejected(
            failure.get("code", 0), failure.get("err_code", 0), failure.get("description", "")
        )
    return answer


def stored_sequence(answer: Mapping[str, Any]) -> int:
    """Return the sequence of a published message.

    Raises `ConnectionLost` without one: any subscriber of the subject may answer before the stream.
    """
    sequence = answer.get("seq")
    if not isinstance(sequence, int) or sequence < 1:
        raise ConnectionLost("the answer is not one of the stream")
    return sequence


def require_certain(info: Mapping[str, Any]) -> None:
    """Raise `ConnectionLost` for a `STREAM.INFO` that may be outdated.

    It is certain if it comes from a leader in contact with the majority of the replicas.
    """
    replicas = _count_replicas(info)
    leads = bool((info.get("cluster") or {}).get("leader"))
    if replicas > 1 and not (leads and 2 * (1 + len(replicas_in_touch(info))) > replicas):
        name = info["config"]["name"]
        raise ConnectionLost(f"stream {name} has no leader in contact with most of its servers")


def is_up_to_date(info: Mapping[str, Any], server: str, age: float = 0.0) -> bool:
    """Whether a server has all messages of a certain `STREAM.INFO` that are `age` seconds old.

    Others answer as well: one that has lost contact with the leader lags, and does not know it. For
    an age above `IN_TOUCH` a replica in touch may lag by what came since.
    """
    most_lag = _MOST_LAG if age > IN_TOUCH else 0
    if _count_replicas(info) == 1 or server == info["cluster"]["leader"]:
        return True
    return any(
        (most_lag or one.get("current")) and one.get("lag", 0) <= most_lag
        for one in replicas_in_touch(info)
        if one["name"] == server
    )


def require_up_to_date(info: Mapping[str, Any], server: str, age: float = 0.0) -> None:
    """Raise `ConnectionLost` unless a server is up to date by a `STREAM.INFO`, which is certain."""
    require_certain(info)
    if not is_up_to_date(info, server, age):
        raise ConnectionLost(f"server {server} may not have all messages")


def replicas_in_touch(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the other replicas of which the answering server has received something just now."""
    return [
        one
        for one in (info.get("cluster") or {}).get("replicas") or ()
        if not one.get("offline") and 0 < one.get("active", 0) < _LEASE
    ]


def _count_replicas(info: Mapping[str, Any]) -> int:
    return int(info["config"].get("num_replicas") or 1)
