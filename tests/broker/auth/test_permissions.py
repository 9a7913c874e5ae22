"""The rights of a host have its name, work in any stream, and reach no other host."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.auth import permissions
from broker.auth.credentials import Credential
from broker.auth.permissions import API, grant_rights
from nats_logship.client.answer import Denied
from nats_logship.client.bucket import read, write
from nats_logship.client.config import require_layout
from nats_logship.client.connection import Connection
from nats_logship.wire.pause import PAUSE_SUBJECT
from nats_logship.wire.streams import CONFIG_BUCKET, PARTITIONS_KEY, StreamLayout
from receiver.consume.wake import Wake
from shipper.publish.messages import HostMessages
from tests import secured
from tests.shipper.publish.agents import PublishingAgent
from tests.support.processes import Processes

STREAMS = 2
CONFIG = ("partitions", "streams", "pause")


@pytest.mark.parametrize("host", ["web01", "web01.example.net", "wéb01", "x" * 253])
def test_every_right_of_a_host_has_its_name(host: str) -> None:
    mine, other = (grant_rights(secured.host(name), 1) for name in (host, "db" + host[2:]))
    assert mine is not None
    assert other is not None

    shared = {*mine.publish, *mine.subscribe} & {*other.publish, *other.subscribe}
    assert shared == {
        *(f"{API}.DIRECT.GET.KV_LOGS_CONFIG.$KV.LOGS_CONFIG.{key}" for key in CONFIG),
        PAUSE_SUBJECT,
        "$SYS.REQ.USER.INFO",
    }
    assert [one for one in mine.publish if one.startswith("logs.")] == [f"logs.*.{host}"]


CREDENTIALS = {
    "Host": secured.host("web01"),
    "Receiver": secured.receiver("r2", 2),
    "Monitor": secured.monitor("m1"),
    "Site": secured.site("away"),
}


def read_examples() -> dict[str, set[str]]:
    """Return the subjects in the head of `permissions.py` by the words before them."""
    found: dict[str, set[str]] = {}
    words = ""
    for line in (permissions.__doc__ or "").splitlines():
        if line.startswith("    "):
            subject = re.sub(r"^API\b", API, re.split(r"\s{2,}", line.strip())[0])
            found[words].update(expand(subject))
        elif line.endswith(":"):
            words = line
            found[words] = set()
    return found


def expand(subject: str) -> Iterator[str]:
    """Yield the subjects of `x{a,b}` or `x{0..7}`."""
    choice = re.fullmatch(r"(.*?)\{(.*?)\}(.*)", subject)
    if choice is None:
        yield subject
        return
    before, choices, after = choice.groups()
    first, _, last = choices.partition("..")
    some = map(str, range(int(first), int(last) + 1)) if last else choices.split(",")
    for one in some:
        yield from expand(before + one + after)


@pytest.mark.parametrize("kind", CREDENTIALS)
@pytest.mark.parametrize("verb", ["publishes", "subscribes"])
def test_the_examples_in_the_head_of_permissions_are_true(kind: str, verb: str) -> None:
    rights = grant_rights(CREDENTIALS[kind], 1, "here")
    (words, example), *_ = (
        (words, subjects)
        for words, subjects in read_examples().items()
        if words.startswith(f"{kind} `{CREDENTIALS[kind].name}`") and verb in words
    )

    assert rights is not None
    assert example == {*(rights.publish if verb == "publishes" else rights.subscribe)}
    assert verb == "subscribes" or rights.responds == ("may answer" in words)


def test_the_example_of_a_receiver_of_all_partitions_is_true() -> None:
    all_rights = grant_rights(secured.receiver("all"), 1)
    one_rights = grant_rights(CREDENTIALS["Receiver"], 1)
    (example,) = (
        one for words, one in read_examples().items() if words.startswith("Receiver `all")
    )

    assert all_rights is not None
    assert one_rights is not None
    shared = {one.replace(".r2.", ".all.") for one in one_rights.publish if "p2" not in one}
    assert example | shared == {*all_rights.publish}


@pytest.mark.parametrize(
    "credential",
    [*CREDENTIALS.values(), secured.receiver("all")],
    ids=lambda one: str(one.holder),
)
def test_no_right_but_an_admins_reaches_the_api_of_the_streams_itself(
    credential: Credential,
) -> None:
    rights = grant_rights(credential, 1, "here")
    assert rights is not None

    every = (*rights.publish, *rights.subscribe)
    assert not [one for one in every if one.startswith(("$JS.API", "$JS.>", "$JS.*", ">", "*"))]


@pytest.mark.nats
async def test_a_host_moves_to_another_stream_and_a_receiver_reads_its_own(
    processes: Processes, tmp_path: Path
) -> None:
    server = await asyncio.to_thread(
        secured.start_secured,
        processes,
        tmp_path,
        *(secured.host("web02"), secured.host("web01"), secured.receiver("r1", 1)),
        streams=STREAMS,
    )
    own, host, other, receiver = (
        Connection([server.address], "tests", server.access(name))
        for name in (secured.OWN, "web02", "web01", "r1")
    )
    try:
        layout = await require_layout(host)
        assert layout == StreamLayout(2, STREAMS) == await require_layout(receiver)
        agent = await PublishingAgent(host, host="web02").open()
        entry = await read(own, CONFIG_BUCKET, PARTITIONS_KEY)
        assert entry is not None
        assert agent.config.subject.partition == 1

        await write(own, CONFIG_BUCKET, PARTITIONS_KEY, b"1", entry.revision)
        await agent.open()

        assert agent.config.subject.partition == 0
        heads = {
            head.stream: head for head in await HostMessages(host, "web02", STREAMS).read_last()
        }
        assert heads["LOGS_1"].origin is not None
        assert heads["LOGS_1"].origin.moved == 0
        assert set(heads) == {"LOGS_0", "LOGS_1"}
        for stream in ("LOGS_0", "LOGS_1"):
            with pytest.raises(Denied):
                await other.request(f"$JS.API.DIRECT.GET.{stream}.logs.p1.web02")
        wake = Wake(receiver, 1, "LOGS_1", 1)
        assert await wake.count(1) == 2
        with pytest.raises(Denied):
            await Wake(receiver, 0, "LOGS_0", 1).count(1)
        with pytest.raises(Denied):
            await receiver.api("STREAM.MSG.GET.LOGS_0", {"seq": 1})
    finally:
        for connection in (own, host, other, receiver):
            await connection.close()
