"""Answers are heard on the inbox that settings or a credential file name, and on that of everybody where they name none."""

import asyncio
from pathlib import Path

import pytest

from broker.auth.permissions import API
from broker.client.access import Access
from broker.client.answer import Denied
from broker.client.connection import Connection
from tests import secured
from tests.support.processes import Processes

pytestmark = pytest.mark.nats


async def test_answers_are_heard_where_rights_are_limited_and_else_the_inbox_is_named(
    processes: Processes, tmp_path: Path
) -> None:
    receiver = secured.receiver("r0", 0)
    server = await asyncio.to_thread(secured.start_secured, processes, tmp_path, receiver)
    own = Connection([server.address], "test", server.access("r0"))
    other = Access(user="r0", password="r0", inbox_prefix="_INBOX_other", api_prefix=API)
    deaf = Connection([server.address], "test", other)

    assert (await own.api("STREAM.INFO.LOGS"))["config"]["name"] == "LOGS"
    assert own.private().startswith("r0.")
    with pytest.raises(Denied, match=r'subscription to "_INBOX_other\.>"'):
        await deaf.api("STREAM.INFO.LOGS")

    await own.close()
    await deaf.close()
