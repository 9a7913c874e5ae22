"""`logbroker requeue`: publish the messages of a receiver's quarantine file again, each once.

Only the payload is published, without the headers of the shipper: by their spans a receiver would
drop the lines as already received. So the lines are appended to the host's file, after later ones.
A message whose payload still cannot be read is left out: it would be quarantined again.

If we die here: each published message has a header with its tag. FILE.progress, written before
the first publish, holds the last sequence of the stream. The next run reads the tags after that
sequence and skips these messages. If the stream has lost messages after it, a person must decide.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from broker.commands.shared import JSON, run_on_broker, show, with_settings
from broker.inspect.message import json_object
from broker.inspect.reader import MessageReader
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import open_folder, read_file, report_errors, write_atomic
from nats_logship.app.text import format_count, printable
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.find import find_message
from nats_logship.client.stream_reader import at_sequence
from nats_logship.wire.message import EXPECTED_SEQUENCE, MalformedMessage, decode_payload
from nats_logship.wire.subjects import InvalidHost, InvalidSubject, Subject

_REQUEUED = "Log-Requeued"
"""Header of a requeued message: its former sequence, and the hash of its payload."""
_ENCODING = "Content-Encoding"
_PAUSE = 0.2  # seconds before the stream is searched for a publish without acknowledgement


class Quarantined(BaseModel):
    """A quarantined message: the JSON line of its file, and the payload after it."""

    subject: str
    sequence: NonNegativeInt
    headers: dict[str, str]
    size: NonNegativeInt = Field(alias="bytes")
    payload: bytes = b""

    @property
    def tag(self) -> str:
        """A name that no other message has."""
        return f"{self.sequence}-{hashlib.sha256(self.payload).hexdigest()[:32]}"


class _Progress(BaseModel):
    """The stream before the first publish: when it was created, and its last sequence."""

    stream: str
    created: str
    last: NonNegativeInt


@click.command(cls=SectionedCommand)
@click.argument("file", type=click.Path(path_type=Path))
@JSON
@with_settings()
def requeue(settings: BrokerSettings, file: Path, as_json: bool) -> None:
    """Publish the messages of a receiver's quarantine file again, each once.

    FILE is OUTPUT/.quarantine/*.msg of a receiver, and is renamed to FILE.requeued afterwards. The
    lines are appended to the host's file.
    """
    messages, lines = [], 0
    for one in _read(file):
        try:
            Subject.parse(one.subject)
            lines += len(decode_payload(one.headers, one.payload).splitlines())
            messages.append(one)
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            named = f"message {one.sequence} of {one.subject}"
            click.echo(printable(f"{named} cannot be read and is left out: {error}"), err=True)
    if not messages:
        raise OperatorError(f"no message of {file} can be read; nothing was published")
    run_on_broker(settings, "requeue", lambda connection: _publish_all(connection, file, messages))
    with report_errors(file), open_folder(file.parent) as folder:
        folder.rename(file.name, f"{file.name}.requeued")
        folder.remove(f"{file.name}.progress")
        folder.sync()
    done = f"{format_count(len(messages), 'message')} with {format_count(lines, 'line')}"
    text = f"published {done}; renamed the file to {file}.requeued"
    document = {"messages": len(messages), "lines": lines, "file": f"{file}.requeued"}
    show(document, text, as_json=as_json)


def _read(file: Path) -> Iterator[Quarantined]:
    try:
        data = read_file(file)
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {file}: {error.strerror}; give a file of a receiver's quarantine"
        ) from None
    at = 0
    while at < len(data):
        begin = (data.find(b"\n", at) + 1) or len(data)
        try:
            about = Quarantined.model_validate(json_object(data[at:begin]))
        except ValidationError:
            about = None
        if about is None or begin + about.size > len(data):
            raise ConfigurationError(
                f"{file} is not a quarantine file, or is damaged at byte {at}; "
                "nothing was published"
            )
        at = begin + about.size + 1  # a newline is between messages
        yield about.model_copy(update={"payload": data[begin : at - 1]})


async def _publish_all(connection: Connection, file: Path, messages: list[Quarantined]) -> None:
    """Publish the messages that are not published yet, with FILE.progress beside the file."""
    path, published = file.with_name(f"{file.name}.progress"), set[str]()
    subjects = sorted({message.subject for message in messages})
    try:
        before = _Progress.model_validate_json(read_file(path))
        published = await _read_tags(connection, before, subjects)
    except FileNotFoundError:
        before = await _start(connection, messages[0].subject)
        write_atomic(path, before.model_dump_json())
    except ValidationError as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None
    for message in messages:
        while message.tag not in published:
            if await _publish(connection, before.stream, message):
                break
            published = await _read_tags(connection, before, subjects)


async def _start(connection: Connection, subject: str) -> _Progress:
    names = await connection.api("STREAM.NAMES", {"subject": subject})
    if not (streams := names.get("streams")):
        raise OperatorError(f"no stream takes {subject}: its partition does not exist")
    info = await connection.api(f"STREAM.INFO.{streams[0]}")
    return _Progress(stream=streams[0], created=info["created"], last=info["state"]["last_seq"])


async def _read_tags(
    connection: Connection, before: _Progress, subjects: Sequence[str]
) -> set[str]:
    """Return the tags of messages that are published already.

    Raises `OperatorError` if the stream has lost messages since.
    """
    info = await connection.api(f"STREAM.INFO.{before.stream}")
    state = info["state"]
    if info["created"] != before.created or state["first_seq"] > before.last + 1:
        raise OperatorError(
            f"an earlier run was interrupted, and stream {before.stream} has lost messages since: "
            "it is unknown which messages were published. Search the host's file for their lines; "
            "remove the messages that you find from FILE, remove FILE.progress, and run this again"
        )
    start = at_sequence(before.last + 1)
    reader = MessageReader(connection, before.stream, start, subjects, headers_only=True)
    headers = [one.headers async for one in reader.read_all(state["last_seq"])]
    return {found[_REQUEUED] for found in headers if _REQUEUED in found}


async def _publish(connection: Connection, stream: str, message: Quarantined) -> bool:
    """Publish a message after the last one of its subject.

    Return False if the acknowledgement was lost, or another message was stored first.
    """
    found = await find_message(connection, stream, {"last_by_subj": message.subject})
    kept = {name: text for name, text in message.headers.items() if name == _ENCODING}
    expected = str(found.sequence if found else 0)
    headers = {**kept, _REQUEUED: message.tag, EXPECTED_SEQUENCE: expected}
    try:
        await connection.ask(message.subject, message.payload, headers)
    except ConnectionLost:
        await asyncio.sleep(_PAUSE)
        return False
    except Rejected as error:
        if not error.is_conflict:
            raise
        return False
    return True
