"""`logbroker requeue`: puts messages that a receiver has set aside back into their stream, each once.

What is put back is the payload, as lines of no file: the headers of a shipper are left out, since a receiver drops what it
has passed by their spans. So the lines come to the end of the host's file, behind later ones. A message whose payload
still cannot be read is left out, as it would be set aside again.

What if we die? Each message that is put back names itself in a header. Before the first one, FILE.progress says where the
stream ends. The next run reads which ones came after that, and leaves them out. Where the stream has lost messages behind
that sequence nobody can tell, and a person decides.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from broker.commands.shared import JSON, run_on_broker, show, with_settings
from broker.inspect.message import json_object
from broker.inspect.reader import MessageReader, find_message
from broker.settings import BrokerSettings
from nats_logship.app.command_line import SectionedCommand
from nats_logship.app.exits import ConfigurationError, OperatorError
from nats_logship.app.files import open_folder, read_file, report_errors, write_atomic
from nats_logship.app.text import format_count, printable
from nats_logship.client.answer import ConnectionLost, Rejected
from nats_logship.client.connection import Connection
from nats_logship.client.stream_reader import at_sequence
from nats_logship.wire.message import EXPECTED_SEQUENCE, MalformedMessage, decode_payload
from nats_logship.wire.subjects import InvalidHost, InvalidSubject, Subject

_REQUEUED = "Log-Requeued"
"""Header that names a message that was put back: its sequence before, and the hash of its payload."""
_ENCODING = "Content-Encoding"
_PAUSE = 0.2  # seconds before a publish whose acknowledgement was lost is looked for


class Quarantined(BaseModel):
    """A message that was set aside: what its file says of it, and the payload, which follows there."""

    subject: str
    sequence: NonNegativeInt
    headers: dict[str, str]
    size: NonNegativeInt = Field(alias="bytes")
    payload: bytes = b""

    @property
    def tag(self) -> str:
        """What tells it from every other message."""
        return f"{self.sequence}-{hashlib.sha256(self.payload).hexdigest()[:32]}"


class _Progress(BaseModel):
    """A stream before the first message was put back: its last sequence, and when it was made."""

    stream: str
    created: str
    last: NonNegativeInt


@click.command(cls=SectionedCommand)
@click.argument("file", type=click.Path(path_type=Path))
@JSON
@with_settings()
def requeue(settings: BrokerSettings, file: Path, as_json: bool) -> None:
    """Put the messages of a quarantine file of a receiver (OUTPUT/.quarantine/*.msg) back into their stream.

    Their lines come to the end of the file of the host. FILE is then called FILE.requeued.
    """
    messages, lines = [], 0
    for one in _read(file):
        try:
            Subject.parse(one.subject)
            lines += len(decode_payload(one.headers, one.payload).splitlines())
            messages.append(one)
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            named = f"message {one.sequence} of {one.subject}"
            words = f"{named} still cannot be read, and is left out: {error}"
            click.echo(printable(words), err=True)
    if not messages:
        raise OperatorError(f"no message of {file} can be read; nothing was put back")
    run_on_broker(settings, "requeue", lambda connection: _put_back(connection, file, messages))
    with report_errors(file), open_folder(file.parent) as folder:
        folder.rename(file.name, f"{file.name}.requeued")
        folder.remove(f"{file.name}.progress")
        folder.sync()
    held, are = format_count(lines, "line"), "is" if len(messages) == 1 else "are"
    text = f"{format_count(len(messages), 'message')} with {held} {are} back; the file is {file}.requeued"
    document = {"messages": len(messages), "lines": lines, "file": f"{file}.requeued"}
    show(document, text, as_json=as_json)


def _read(file: Path) -> Iterator[Quarantined]:
    try:
        data = read_file(file)
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    at = 0
    while at < len(data):
        begin = (data.find(b"\n", at) + 1) or len(data)
        try:
            about = Quarantined.model_validate(json_object(data[at:begin]))
        except ValidationError:
            about = None
        if about is None or begin + about.size > len(data):
            raise ConfigurationError(
                f"{file} is no quarantine file of a receiver, or damaged: no message at byte {at}; nothing was put back"
            )
        at = begin + about.size + 1  # a newline is between messages
        yield about.model_copy(update={"payload": data[begin : at - 1]})


async def _put_back(connection: Connection, file: Path, messages: list[Quarantined]) -> None:
    path, back = file.with_name(f"{file.name}.progress"), set[str]()
    subjects = sorted({message.subject for message in messages})
    try:
        before = _Progress.model_validate_json(read_file(path))
        back = await _back_since(connection, before, subjects)
    except FileNotFoundError:
        before = await _begin(connection, messages[0].subject)
        write_atomic(path, before.model_dump_json())
    except ValidationError as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None
    for message in messages:
        while message.tag not in back and not await _publish(connection, before.stream, message):
            back = await _back_since(connection, before, subjects)


async def _begin(connection: Connection, subject: str) -> _Progress:
    names = await connection.api("STREAM.NAMES", {"subject": subject})
    if not (streams := names.get("streams")):
        raise OperatorError(f"no stream takes {subject}; its partition does not exist")
    info = await connection.api(f"STREAM.INFO.{streams[0]}")
    return _Progress(stream=streams[0], created=info["created"], last=info["state"]["last_seq"])


async def _back_since(
    connection: Connection, before: _Progress, subjects: Sequence[str]
) -> set[str]:
    """Return the tags of messages that were put back; raises `OperatorError` where the stream cannot tell."""
    info = await connection.api(f"STREAM.INFO.{before.stream}")
    state = info["state"]
    if info["created"] != before.created or state["first_seq"] > before.last + 1:
        raise OperatorError(
            f"an earlier run was interrupted, and stream {before.stream} has lost messages since, so that nobody can tell "
            "which messages are back: look for their lines in the file of the host; remove FILE.progress, and those that "
            "are there from FILE"
        )
    start = at_sequence(before.last + 1)
    reader = MessageReader(connection, before.stream, start, subjects, headers_only=True)
    headers = [one.headers async for one in reader.read_all(state["last_seq"])]
    return {found[_REQUEUED] for found in headers if _REQUEUED in found}


async def _publish(connection: Connection, stream: str, message: Quarantined) -> bool:
    """Publish a message behind the last one of its subject; return False where it may be stored, or another one came first."""
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
