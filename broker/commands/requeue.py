"""`logbroker requeue`: puts messages that a receiver has set aside back into their stream, each once.

What is put back is the payload, as lines of no file: the headers of a shipper are left out, since a receiver drops what it
has passed by their spans. So the lines come to the end of the host's file, behind later ones. A message whose payload
still cannot be read is left out, as it would be set aside again.

What if we die? Before the first message is published, FILE.progress says how far each stream was. Every message that is put
back names itself in a header, and is published by compare-and-set on the last sequence of its subject, after everything
behind that sequence was looked at: a run that follows publishes what is missing. Where the stream has lost messages behind
that sequence nobody can tell, and a person decides.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from pydantic import BaseModel, Field, NonNegativeInt, RootModel, ValidationError

from broker.app.exits import ConfigurationError, OperatorError
from broker.app.files import open_folder, read_file, reporting, write_atomic
from broker.app.untrusted import printable
from broker.client.connection import Connection, ConnectionLost, Rejected
from broker.commands.shared import asking, with_settings
from broker.inspect.ask import find_message
from broker.settings import BrokerSettings
from broker.wire.message import EXPECTED_SEQUENCE, MalformedMessage, decode_payload
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject

__all__ = ["requeue"]

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

    @property
    def new_headers(self) -> dict[str, str]:
        """The headers that it is published with."""
        kept = {name: text for name, text in self.headers.items() if name == _ENCODING}
        return {**kept, _REQUEUED: self.tag}


class _Start(BaseModel):
    """The last sequence of a stream, made at `created`, before the first message of a file was put back."""

    created: str
    last: NonNegativeInt


_Progress = RootModel[dict[str, _Start]]
"""Where the search for messages that are back begins, by stream."""


@dataclass(slots=True)
class _Subject:
    """A subject: how far it was looked through, and what was put back there; `is_whole` says whether all of it is there."""

    name: str
    stream: str
    seen: int
    is_whole: bool
    tags: set[str] = field(default_factory=set)

    async def look(self, connection: Connection) -> int:
        """Look through what came since; return the last sequence, which is 0 where the subject holds nothing."""
        last = await find_message(connection, self.stream, {"last_by_subj": self.name})
        while one := await find_message(
            connection, self.stream, {"seq": self.seen + 1, "next_by_subj": self.name}
        ):
            self.seen = one.sequence
            self.tags.add(one.headers.get(_REQUEUED, ""))
        return last.sequence if last else 0


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@with_settings()
def requeue(settings: BrokerSettings, file: Path) -> None:
    """Put the messages of a quarantine file of a receiver (OUTPUT/.quarantine/*.msg) back into their stream.

    Their lines come to the end of the file of the host. FILE is then called FILE.requeued.
    """
    messages, lines = [], 0
    for one in _read(file):
        try:
            Subject.parse(one.subject)
            lines += len(decode_payload(one.new_headers, one.payload).splitlines())
            messages.append(one)
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            named = f"message {one.sequence} of {one.subject}"
            words = f"{named} still cannot be read, and is left out: {error}"
            click.echo(printable(words), err=True)
    if not messages:
        raise OperatorError(f"no message of {file} can be read; nothing was put back")
    asking(settings, "requeue", lambda connection: _put_back(connection, file, messages))
    with reporting(file), open_folder(file.parent) as folder:
        folder.rename(file.name, f"{file.name}.requeued")
        folder.remove(f"{file.name}.progress")
        folder.sync()
    click.echo(f"{len(messages)} messages with {lines} lines are back; the file is {file}.requeued")


def _read(file: Path) -> Iterator[Quarantined]:
    try:
        data = read_file(file)
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    at = 0
    while at < len(data):
        begin = (data.find(b"\n", at) + 1) or len(data)
        try:
            about = Quarantined.model_validate_json(data[at:begin])
        except ValidationError:
            about = None
        if about is None or begin + about.size > len(data):
            raise ConfigurationError(
                f"{file} is no quarantine file of a receiver, or damaged: no message at byte {at}; nothing was put back"
            )
        at = begin + about.size + 1  # a newline is between messages
        yield about.model_copy(update={"payload": data[begin : at - 1]})


async def _put_back(connection: Connection, file: Path, messages: list[Quarantined]) -> None:
    streams = {one.subject: await _stream_of(connection, one.subject) for one in messages}
    infos = {one: await connection.api(f"STREAM.INFO.{one}") for one in set(streams.values())}
    progress = file.with_name(f"{file.name}.progress")
    try:
        starts = _Progress.model_validate_json(read_file(progress)).root
    except FileNotFoundError:
        starts = {
            name: _Start(created=info["created"], last=info["state"]["last_seq"])
            for name, info in infos.items()
        }
        write_atomic(progress, _Progress(starts).model_dump_json())
    except (OSError, ValidationError) as error:
        raise ConfigurationError(f"cannot read {progress}: {error}") from None
    subjects: dict[str, _Subject] = {}
    for name, stream in streams.items():
        start, info = starts[stream], infos[stream]
        is_whole = info["created"] == start.created and info["state"]["first_seq"] <= start.last + 1
        subjects[name] = _Subject(name, stream, start.last, is_whole)
    for message in messages:
        await _publish_once(connection, message, subjects[message.subject])


async def _publish_once(connection: Connection, message: Quarantined, subject: _Subject) -> None:
    """Publish a message unless it is in its stream again."""
    while True:
        last = await subject.look(connection)
        if message.tag in subject.tags:
            return
        if not subject.is_whole:
            raise OperatorError(
                f"an earlier run was interrupted, and stream {subject.stream} has lost messages since, so that nobody can "
                f"tell whether message {message.sequence} of {message.subject} is back: look for its lines in the file of "
                "the host; where they are missing remove FILE.progress and run this again, else rename FILE"
            )
        headers = {**message.new_headers, EXPECTED_SEQUENCE: str(last)}
        try:
            await connection.ask(message.subject, message.payload, headers)
        except ConnectionLost:
            await asyncio.sleep(_PAUSE)  # it may have arrived
        except Rejected as error:
            if not (error.is_wrong_sequence or error.is_write_under_way):
                raise
        else:
            return


async def _stream_of(connection: Connection, subject: str) -> str:
    names = (await connection.api("STREAM.NAMES", {"subject": subject})).get("streams") or []
    if not names:
        raise OperatorError(f"no stream takes {subject} any more; its partition does not exist")
    return str(names[0])
