"""Asks a broker for its status. Changes nothing."""

import asyncio
import json
import logging
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from broker.inspect.message import json_object, subject_of
from broker.inspect.reader import MessageReader, find_message
from broker.inspect.status import (
    BrokerStatus,
    HostStatus,
    PartitionStatus,
    SiteStatus,
    StreamStatus,
)
from broker.report import (
    CREDENTIALS_SUBJECT,
    NAMES_QUESTION,
    SUBJECT,
    CredentialsReport,
    NodeReport,
)
from broker.topology import find_mirrored_site
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.timestamps import SECOND, parse_time, to_datetime
from nats_logship.client import bucket
from nats_logship.client.answer import ConnectionLost, Denied, Rejected
from nats_logship.client.config import read_layout
from nats_logship.client.connection import ELECTION, Connection, retry_until_answered
from nats_logship.client.error_codes import ErrorCode
from nats_logship.client.stream_reader import LAST_PER_SUBJECT, at_sequence
from nats_logship.wire.delivery import RawMessage
from nats_logship.wire.offset import Offset, UnreadableOffset
from nats_logship.wire.pause import PAUSE_KEY, Pause, UnreadablePauses, active_pause, decode_pauses
from nats_logship.wire.positions import Positions, UnreadablePositions
from nats_logship.wire.streams import (
    CONFIG_BUCKET,
    OFFSETS_BUCKET,
    POSITIONS_BUCKET,
    StreamLayout,
    offset_key,
    positions_key,
)
from nats_logship.wire.subjects import consumer_name, partition_filter

Found = TypeVar("Found")
logger = logging.getLogger(__name__)
_RECEIVER = 1.0  # seconds for its answer
_FIRST_REPORT, _NEXT_REPORT = 2.0, 0.3  # seconds
_CREDENTIALS = 15.0  # seconds: a broker takes a change over before it answers
_NOBODY = "503"
_SNAPSHOTS = f"KV_{POSITIONS_BUCKET}"
_PATIENCE = 10.0  # seconds for all that is observed, and
_ASK_AGAIN = 7.0  # in which a question is asked again; the last one ends within the rest


async def streams_of(connection: Connection) -> tuple[str, ...]:
    """Return the names of the streams that hold the lines; raises `Rejected`, `ConnectionLost` or `ConfigurationError`."""
    return (await known_layout(connection)).names


async def stream_named(connection: Connection, name: str | None) -> str:
    """Return the stream that a person means: the only one where none is named; raises `OperatorError` for none of them."""
    names = await streams_of(connection)
    if name not in names and (name or len(names) > 1):
        raise OperatorError(f"--stream is one of {', '.join(names)}")
    return name or names[0]


async def current_pauses(connection: Connection) -> tuple[Pause, ...]:
    """Return the pauses that are not over; none where they cannot be read, which is logged. Raises `ConnectionLost`."""
    try:
        entry = await bucket.read(connection, CONFIG_BUCKET, PAUSE_KEY)
        pauses = decode_pauses(entry.value) if entry else ()
    except Rejected:  # there is no bucket, or none that this user may read
        return ()
    except UnreadablePauses as error:
        logger.warning("the pauses cannot be read, so nothing is paused: %s", error)
        return ()
    now = datetime.now(UTC)  # noqa: TID251 - the shell's clock
    return tuple(one for one in pauses if not one.is_over(now))


async def full_status(connection: Connection) -> BrokerStatus:
    """Return all that the broker and its servers report; raises `Rejected` or `ConnectionLost`."""
    found = await brief_status(connection)
    # the number of servers of a cluster is not known here
    expected = 0 if (await connection.client()).is_clustered else 1
    subjects, nodes, pauses, partitions = await asyncio.gather(
        counts_by_subject(connection, [one.name for one in found.streams]),
        node_reports(connection, expected),
        current_pauses(connection),
        _with_receivers(connection, found),
    )
    known = [one for name in subjects if (one := subject_of(name))]
    hosts = len({one.host for one in known})
    paused = Counter(one.partition for one in known if any(p.covers(one.host) for p in pauses))
    learnt = {"hosts": hosts, "nodes": nodes, "pauses": pauses, "paused_hosts": paused}
    learnt["partitions"] = partitions
    return found.model_copy(update=learnt)


async def brief_status(connection: Connection) -> BrokerStatus:
    """Return what is cheap to ask: neither subjects nor the reports of the servers."""
    version = (await connection.client()).connected_server_version
    layout = await known_layout(connection)
    clock = asyncio.get_running_loop().time
    began = clock()
    account = await connection.api("INFO")
    took = clock() - began
    infos = await asyncio.gather(*(connection.api(f"STREAM.INFO.{name}") for name in layout.names))
    now = infos[0]["ts"]
    # a broker that names no number is somebody else's, or has lost the bucket of offsets as well
    existing = (layout.partitions_in(info["config"]) for info in infos if layout.partitions)
    partitions = (
        _partition(connection, n, layout.stream_of(n), now) for n in sorted(chain(*existing))
    )
    return BrokerStatus(
        server=connection.servers,
        version=f"{version.major}.{version.minor}.{version.patch}",
        now=now,
        answer_seconds=took,
        store_used=account.get("storage", 0),
        store_limit=account.get("limits", {}).get("max_storage", -1),
        current_partitions=layout.partitions,
        streams=tuple(map(_stream, infos)),
        partitions=tuple(await asyncio.gather(*partitions)),
    )


def _stream(info: Mapping[str, Any]) -> StreamStatus:
    copies = filter(None, [info.get("mirror"), *(info.get("sources") or ())])
    return StreamStatus.model_validate({**info, "sites": tuple(map(_site, copies))})


def _site(copy: Mapping[str, Any]) -> SiteStatus:
    active = copy.get("active", -1)
    return SiteStatus(
        name=find_mirrored_site({"mirror": copy}) or copy["name"],
        lag=copy.get("lag", 0),
        contact_seconds=active / SECOND if active >= 0 else None,
        error=(copy.get("error") or {}).get("description", ""),
    )


async def _partition(connection: Connection, number: int, stream: str, now: str) -> PartitionStatus:
    """Return a partition's status; its consumer is asked for alone: a list would wait for others' whose server is away."""
    known: dict[str, Any] = {"partition": number, "stream": stream}
    first = 1
    with suppress(Rejected, ConnectionLost):
        known["behind"], first = await _behind(connection, number, stream)
    try:
        if entry := await bucket.read(connection, OFFSETS_BUCKET, offset_key(number)):
            offset, known["changed_at"] = Offset.decode(entry.value), entry.time
            known, first = asdict(offset) | {"moved": offset.is_moved} | known, offset.next
    except UnreadableOffset as error:  # of one partition: the others are shown as usual
        known["error"] = str(error)
    if known.get("behind"):
        asked = {"seq": max(1, first), "next_by_subj": partition_filter(number)}
        with suppress(Rejected, ConnectionLost):  # it may have lost its leader by now
            if oldest := await find_message(connection, stream, asked):
                age = (parse_time(now) - oldest.stored_at) / SECOND
                known["behind_seconds"] = max(0.0, age)
            else:  # the offset knows better than a consumer that lags, or was not made yet
                known["behind"] = 0
    if known.get("behind") == 0:
        known["behind_seconds"] = 0.0
    return PartitionStatus.model_validate(known)


async def _with_receivers(
    connection: Connection, status: BrokerStatus
) -> tuple[PartitionStatus, ...]:
    """Return the partitions with what their receivers say; each receiver is asked once."""
    names = {one.presence for one in status.partitions if not one.released and not one.moved}
    asked = {name: _receiver(connection, name) for name in names - {""}}
    answers = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
    created, now = {one.name: one.created for one in status.streams}, parse_time(status.now)
    found = []
    for one in status.partitions:
        receiver = _receiver_of(one, answers.get(one.presence))
        if receiver["running"] is False:
            since = parse_time(one.changed_at or created[one.stream])
            receiver["missing_seconds"] = max(0.0, (now - since) / SECOND)
        found.append(one.model_copy(update={"receiver": receiver}))
    return tuple(found)


def _receiver_of(one: PartitionStatus, answer: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what is known of the receiver of a partition, by what the one at its address says."""
    if one.error:
        return {"running": None, "error": one.error}
    if one.owner is None or one.released or one.moved:
        return {"running": False, "moved": one.moved, "released": one.released}
    if not one.presence or answer is None:
        return {"running": None}
    own = answer.get(str(one.partition))
    return {"running": answer["running"]} | (own if isinstance(own, dict) else {})


async def _receiver(connection: Connection, presence: str) -> dict[str, Any] | None:
    """Return what a receiver answers at its address, with `running`; None where we may not ask."""
    try:
        subject = f"logship.receiver.{presence}"
        answer = await connection.request(subject, patience=_RECEIVER)
    except Denied:
        return None
    except (ConnectionLost, Rejected):
        return {"running": False}
    return {**(json_object(bytes(answer.data)) or {}), "running": True}


async def _behind(connection: Connection, number: int, stream: str) -> tuple[int, int]:
    """Return how many messages of a partition are not committed, and from which sequence on: all of them before a receiver has made its consumer."""
    try:
        consumer = await connection.api(f"CONSUMER.INFO.{stream}.{consumer_name(number)}")
    except Rejected as error:
        if error.error != ErrorCode.CONSUMER_NOT_FOUND:
            raise
        counts = await counts_by_subject(connection, [stream], partition_filter(number))
        return sum(counts.values()), 1
    waiting: int = consumer["num_pending"] + consumer["num_ack_pending"]
    return waiting, consumer["ack_floor"]["stream_seq"] + 1


async def counts_by_subject(
    connection: Connection, streams: Sequence[str], wanted: str = ">"
) -> dict[str, int]:
    """Return how many messages there are on each subject that matches `wanted`; raises `Rejected` or `ConnectionLost`."""
    found: dict[str, int] = {}
    for stream in streams:
        own: dict[str, int] = {}
        total = 1
        while len(own) < total:
            body = {"subjects_filter": wanted, "offset": len(own)}
            info = await connection.api(f"STREAM.INFO.{stream}", body, patience=30)
            page, total = info["state"].get("subjects") or {}, info.get("total", 0)
            # a page may bring nothing new: subjects that come and go meanwhile move the others
            if page.keys() <= own.keys():
                break
            own |= page
        found |= own
    return found


class SavedPositions:
    """What the snapshots of all hosts say, of which only those are read that were written since the last time."""

    def __init__(self) -> None:
        """Know of none before `read`."""
        self.by_key: dict[str, tuple[int, str]] = {}
        """How many files a host has, and the version of its shipper, by the key of its snapshot."""
        self._last = 0  # sequence that was read

    async def read(self, connection: Connection) -> None:
        """Read what was written since; raises `Rejected`, `ConnectionLost`."""
        state = (await connection.api(f"STREAM.INFO.{_SNAPSHOTS}"))["state"]
        if state["last_seq"] < self._last:  # the bucket was made anew
            self._last, self.by_key = 0, {}
        reader = MessageReader(connection, _SNAPSHOTS, at_sequence(self._last + 1))
        async with aclosing(reader.read_all(state["last_seq"])) as messages:
            async for one in messages:
                with suppress(UnreadablePositions):
                    saved = Positions.decode(one.payload)
                    self.by_key[one.name.rpartition(".")[2]] = len(saved.files), saved.version
                await asyncio.sleep(0)  # a snapshot may be large
        self._last = state["last_seq"]


async def ask_hosts(
    connection: Connection, saved: SavedPositions | None = None
) -> list[HostStatus]:
    """Return the hosts by name, as subjects, the headers of the last message of each, and snapshots say, if `saved` are given.

    Raises `Rejected`, `ConnectionLost`. For 100,000 hosts the subjects are 3.5 MB, and the headers are 100,000 small messages.
    """
    status = await brief_status(connection)
    streams = [one.name for one in status.streams]
    subjects, pauses = await asyncio.gather(
        counts_by_subject(connection, streams), current_pauses(connection)
    )
    partitions = {one.partition: one for one in status.partitions}
    found: dict[str, HostStatus] = {}
    now = parse_time(status.now)
    for stream in streams:
        reader = MessageReader(connection, stream, LAST_PER_SUBJECT, headers_only=True)
        async with aclosing(reader.read_all()) as messages:
            last = {one.name: one async for one in messages}
        for one in last.values():
            if one.subject is not None:  # `status` shows messages of no host
                host = found.setdefault(one.host, HostStatus(one.host))
                known = partitions.get(one.subject.partition)
                host.add(one, known, subjects.get(one.name, 0))
    moment = to_datetime(now)
    if saved:
        # the bucket may be lost, or not ours to read: the hosts are shown all the same
        with suppress(Rejected):
            await saved.read(connection)
    for host in found.values():
        if saved:
            host.files, host.version = saved.by_key.get(positions_key(host.host), (None, ""))
        host.silent_seconds = round(max(0.0, (now - host.last_seen) / SECOND), 3)
        if pause := active_pause(pauses, host.host, moment):
            host.paused = str(pause)
    return [found[name] for name in sorted(found)]


async def node_reports(connection: Connection, expected: int = 0) -> tuple[NodeReport, ...]:
    """Return the reports of the logbrokers by server name, `expected` of them where that is known; none of a bare nats-server.

    Who may not ask gets none. Raises `ConnectionLost`.
    """
    read = NodeReport.model_validate_json
    found = await _answers(connection, SUBJECT, b"", read, expected, _FIRST_REPORT)
    return tuple(sorted(found, key=lambda report: report.name))


async def names_of_keys(connection: Connection) -> dict[str, str]:
    """Return the holders of credentials by their public keys; raises `ConnectionLost`.

    There are none of a bare nats-server, and for those who may not ask.
    """
    read = TypeAdapter(dict[str, str]).validate_json
    found = await _answers(connection, SUBJECT, NAMES_QUESTION, read, 0, _FIRST_REPORT)
    return {key: name for names in found for key, name in names.items()}


async def credentials_at(
    connection: Connection, revoked: Sequence[tuple[str, str]] = ()
) -> list[CredentialsReport]:
    """Return the credentials at each server of a broker, after some were revoked there; one that does not tell has an `error`.

    Raises `OperatorError` where none tells.
    """
    names = {node.name for node in await node_reports(connection)}
    names |= await retry_until_answered(connection, _replicas, ELECTION)
    asked = json.dumps({"revoke": revoked}).encode()

    def read(answer: bytes) -> CredentialsReport:
        return CredentialsReport.model_validate_json(zlib.decompress(answer))

    subject, patience = CREDENTIALS_SUBJECT, _CREDENTIALS
    found = await _answers(connection, subject, asked, read, len(names), patience)
    if not found:
        raise OperatorError(
            f"no logbroker at {connection.servers} tells of its credentials: come with the credential of an admin, or "
            "run this on its machine with --store-dir"
        )
    silent = "no answer; once it runs again, copy another's credentials.json there"
    for name in names - {one.name for one in found}:
        found.append(CredentialsReport(name=name, error=silent))
    return sorted(found, key=lambda report: report.name)


async def _replicas(connection: Connection) -> set[str]:
    """Return the names of the servers that have a replica of a stream, also of those that are down."""
    infos = [await connection.api(f"STREAM.INFO.{one}") for one in await streams_of(connection)]
    clusters = [info.get("cluster") or {} for info in infos]
    peers = {peer["name"] for one in clusters for peer in one.get("replicas") or ()}
    return {one["leader"] for one in clusters if one.get("leader")} | peers


async def _answers(
    connection: Connection,
    subject: str,
    payload: bytes,
    read: Callable[[bytes], Found],
    expected: int,
    patience: float,
) -> list[Found]:
    """Return what all who listen answer: `expected` of them, or where that is 0 until no more comes; raises `ConnectionLost`."""
    found: list[Found] = []
    arrived: asyncio.Queue[RawMessage] = asyncio.Queue()
    async with connection.open_inbox(arrived.put_nowait) as inbox:
        await connection.publish(subject, payload, reply=inbox)
        # a logbroker that has not answered by now is not there, or is stuck; checks of the server tell which
        with suppress(ConnectionLost, Denied):
            while not expected or len(found) < expected:
                wait = _NEXT_REPORT if found and not expected else patience
                message = await connection.guard(arrived.get(), wait, subject)
                if (message.headers or {}).get("Status") == _NOBODY:
                    break
                with suppress(ValidationError, zlib.error):  # what anybody else answered
                    found.append(read(message.data))
    return found


async def attempt(
    connection: Connection, asked: Awaitable[Found], seconds: float
) -> tuple[Found | None, str]:
    """Return what was asked for, or None and why: a broker that is away, or refuses, is no error; raises `ConfigurationError`, which says nothing of the broker."""
    try:
        async with asyncio.timeout(seconds):
            return await asked, ""
    except ConfigurationError:
        raise
    except TimeoutError:
        return None, connection.away or f"no answer within {seconds:g} s"
    except Rejected as error:
        return None, f"the broker refuses: {error.description}"
    except (OperatorError, ConnectionLost) as error:
        return None, str(error)


async def observe(connection: Connection) -> tuple[BrokerStatus | None, str]:
    """Return the status as it is learnt within ten seconds, or None and why; raises `ConfigurationError` for a setting of our own."""

    async def learn() -> BrokerStatus:
        await connection.connect()  # a broker that is away is not waited for
        return await retry_until_answered(connection, full_status, _ASK_AGAIN)

    return await attempt(connection, learn(), _PATIENCE)


async def known_layout(connection: Connection) -> StreamLayout:
    """Return what `read_layout` does; 0 partitions in one stream where the broker has no bucket, as one of somebody else.

    Raises what `read_layout` raises, while the leader of the bucket is being elected as well.
    """
    try:
        return await read_layout(connection) or StreamLayout(0)
    except Rejected as refused:
        if refused.is_nobody:  # neither the bucket, nor its leader
            try:
                await connection.api(f"STREAM.INFO.KV_{CONFIG_BUCKET}")
            except Rejected as error:
                refused = error
        if refused.is_leaderless:
            raise
        return StreamLayout(0)
