"""Ranges of a stream, also while a server answers that has fallen behind."""

from typing import Any

import pytest

from nats_logship.client.answer import Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.ranges import SequenceRange, read_runs
from nats_logship.wire.streams import STREAM

pytestmark = pytest.mark.nats

EMPTY = {"messages": 0, "first_seq": 0, "last_seq": 0}


class CutOff(Connection):
    """For so many questions the server is a leader that was cut off before the first message."""

    questions = 0

    async def publish(self, subject: str, *rest: Any, reply: str = "", **more: Any) -> None:
        if self.questions and ".DIRECT.GET." in subject:
            self.questions -= 1
            subject, rest, more = reply, (b"",), {"headers": {"Status": "404"}}
            reply = ""
        await super().publish(subject, *rest, reply=reply, **more)

    async def api(self, name: str, *rest: Any, **more: Any) -> dict[str, Any]:
        if not self.questions:
            return await super().api(name, *rest, **more)
        self.questions -= 1
        if name.startswith("STREAM.MSG.GET."):
            raise Rejected(404, ErrorCode.NO_MESSAGE_FOUND, "no message found")
        found = await super().api(name, *rest, **more)
        return found | {"state": found["state"] | EMPTY}


@pytest.mark.parametrize("questions", range(1, 9))
async def test_messages_are_not_missing_because_a_leader_was_cut_off(
    logs_url: str, questions: int
) -> None:
    connection = CutOff([logs_url], "test")
    await connection.connect()
    for number in range(5):
        await connection.ask("logs.p0.web01", b"%d\n" % number)

    connection.questions = questions
    runs = [run async for run in read_runs(connection, SequenceRange(">", 1, 6, STREAM))]

    assert [one.data for run in runs for one in run] == [b"%d\n" % number for number in range(5)]
    await connection.close()
