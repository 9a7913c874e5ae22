"""What the broker answers: a result, an error, or nothing that can be relied on. Reads; never sends.

Of a stream with replicas only its leader knows what it holds. Others answer too while there is no leader, and one that
was cut off takes itself for the leader for 10 s and more, while the others have elected another one.
"""

import json
from collections.abc import Mapping
from typing import Any

from nats_logship.client.error_codes import ErrorCode

_UNAVAILABLE = 503
_SERVER_ERROR = 500
_OF_CONFIGURATION = {  # reported as server errors, although only another configuration helps
    ErrorCode.MEMORY_RESOURCES_EXCEEDED,
    ErrorCode.STORAGE_RESOURCES_EXCEEDED,  # a full disk is a failed write instead
    ErrorCode.STREAM_INVALID_CONFIG,
    ErrorCode.STREAM_REPLICAS_NOT_SUPPORTED,  # replicas without a cluster
}

_LEASE = 2_500_000_000  # nanoseconds; nobody else is elected within 4 s of a replica's last word with its leader (raft.go)


class ConnectionLost(Exception):
    """The client was lost, or no answer came in time: what was sent may or may not have arrived."""


class Rejected(Exception):
    """JetStream answered with an error; `error` is its number (`err_code`), 0 where nobody listens (no JetStream, no stream)."""

    def __init__(self, code: int, error: int, description: str) -> None:
        super().__init__(f"{description} ({code}/{error})")
        self.code = code
        self.error = error
        self.description = description
        self.is_nobody = code == _UNAVAILABLE and error == 0
        """Whether nobody listens at the subject: no JetStream, no such stream, or none that has a leader."""
        self.is_leaderless = self.is_nobody or (
            code == _UNAVAILABLE and error == ErrorCode.CLUSTER_NOT_AVAIL
        )
        """Whether a leader may be missing that the servers of a cluster are about to elect."""
        self.is_busy = error == ErrorCode.STREAM_TOO_MANY_REQUESTS
        """Whether too many messages wait for the stream: nothing was stored; try again at once."""
        self.is_server_failure = self.is_busy or (
            code >= _SERVER_ERROR and error not in _OF_CONFIGURATION
        )
        """Whether the server failed, by its disk or for a while, at a request that a sound server may take as it is."""
        self.is_wrong_sequence = error == ErrorCode.STREAM_WRONG_LAST_SEQUENCE
        """Whether a write expected a sequence that is not the last one of its subject."""
        self.is_write_under_way = error == ErrorCode.STREAM_WRONG_LAST_SEQUENCE_CONSTANT
        """Whether another write of the subject is under way, our own before it or one that only names it: nothing was stored."""
        self.is_absent = error == ErrorCode.STREAM_NOT_FOUND
        """Whether there is no such stream, or bucket."""
        self.is_too_large = error == ErrorCode.STREAM_MESSAGE_EXCEEDS_MAXIMUM
        """Whether a message is larger than its stream takes."""
        self.is_conflict = self.is_wrong_sequence or self.is_write_under_way

    @property
    def remedy(self) -> str:
        """What a person does about it, in one clause."""
        if self.is_absent:
            return "run `logbroker apply`"
        if self.is_leaderless:
            return "a broker that starts has it soon; if that lasts, run `logbroker apply`"
        return "see the broker's log and `logbroker check`"


class Denied(Rejected):
    """The server did not take a message, or a subscription, since we have no right to its subject."""

    def __init__(self, violation: str) -> None:
        super().__init__(
            403, 0, f"{violation}; give this user the right to it, or come as one that has it"
        )

    @property
    def remedy(self) -> str:
        """What a person does about it, in one clause."""
        return "`logbroker credentials list` shows who has which rights"


def parse_answer(data: bytes) -> dict[str, Any]:
    """Read an answer of JetStream; raises `Rejected` when it is an error, `ConnectionLost` when it is no answer at all."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise ConnectionLost("an answer that is not JetStream's")
    if isinstance(failure := answer.get("error"), dict):
        raise Rejected(
            failure.get("code", 0), failure.get("err_code", 0), failure.get("description", "")
        )
    return answer


def stored_sequence(answer: Mapping[str, Any]) -> int:
    """Return the sequence of a message that was stored; raises `ConnectionLost` for what does not say so.

    Whoever else subscribes to the subject may answer too, and be quicker.
    """
    sequence = answer.get("seq")
    if not isinstance(sequence, int) or sequence < 1:
        raise ConnectionLost("an answer that is not the stream's")
    return sequence


def is_certain(info: Mapping[str, Any]) -> bool:
    """Whether what a server tells of a stream (`STREAM.INFO`) comes from its leader, in touch with the majority."""
    replicas = int(info["config"].get("num_replicas") or 1)
    if replicas == 1:
        return True
    leads = bool((info.get("cluster") or {}).get("leader"))
    return leads and 2 * (1 + len(replicas_in_touch(info))) > replicas


def replicas_in_touch(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the replicas that have just been heard by whoever tells of a stream."""
    return [
        one
        for one in (info.get("cluster") or {}).get("replicas") or ()
        if not one.get("offline") and 0 < one.get("active", 0) < _LEASE
    ]
