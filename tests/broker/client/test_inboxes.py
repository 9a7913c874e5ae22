"""Answers are heard on an inbox of one's own where rights are limited, and on that of everybody where they are so."""

from collections.abc import Iterator

import pytest

from broker.client.access import Access
from broker.client.connection import Connection, Denied
from tests import secured
from tests.support.processes import Processes

pytestmark = pytest.mark.nats


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[secured.Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with Processes(folder) as processes:
        yield secured.start_secured(processes, folder, secured.receiver("r0", 0))


@pytest.mark.parametrize(
    ("given", "own"),
    [
        pytest.param("", "r0", id="by its user"),
        pytest.param("_INBOX_r0", "r0", id="given"),
    ],
)
async def test_a_user_of_limited_rights_hears_answers_on_its_own(
    server: secured.Secured, given: str, own: str
) -> None:
    access = Access(user="r0", password="r0", inbox_prefix=given)
    connection = Connection([server.address], "test", access=access)

    assert (await connection.api("STREAM.INFO.LOGS"))["config"]["name"] == "LOGS"

    assert connection.private().startswith(f"{own}.")
    await connection.close()


async def test_the_next_is_tried_where_the_first_is_denied(server: secured.Secured) -> None:
    prefixes = ("_INBOX_nobody", "_INBOX_r0")
    connection = Connection([server.url("r0")], "test", prefixes)

    assert (await connection.api("STREAM.INFO.LOGS"))["config"]["name"] == "LOGS"

    await connection.close()


async def test_where_none_is_allowed_it_is_said_which(server: secured.Secured) -> None:
    access = Access(user="r0", password="r0", inbox_prefix="_INBOX_other")
    connection = Connection([server.address], "test", access=access)

    with pytest.raises(Denied, match=r'subscription to "_INBOX_other\.>"'):
        await connection.api("STREAM.INFO.LOGS")

    await connection.close()
