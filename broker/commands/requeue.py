"""`logbroker requeue`: puts messages that a receiver has set aside back into their stream, each once.

What is put back is the payload, as lines of no file: the headers of a shipper are left out, since a receiver drops what it
has passed by their spans. So the lines come to the end of the host's file, behind later ones. A message whose payload
still cannot be read is left out, as it would be set aside again.

What if we die? Before a message is published, FILE.progress says behind which sequence of its subject it will be. It is
published by compare-and-set on the last sequence of the subject, and every try first looks for it behind that place. A
run that follows goes on there. Where the stream has lost messages behind that place nobody can tell, and a person decides.
"""

import asyncio
import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel, NonNegativeInt, ValidationError

from broker.app import program
from broker.app.exits import ConfigurationError, OperatorError
from broker.app.folder import open_folder, read_file
from broker.app.options import given, settings_options
from broker.app.printable import printable
from broker.app.whole import telling, write_whole
from broker.client.connection import Arrived, Connection, ConnectionLost, Rejected
from broker.commands.asking import asking
from broker.settings import STATUS_FIELDS, BrokerSettings
from broker.wire.message import EXPECTED_SEQUENCE, MalformedMessage, decode_payload
from broker.wire.subjects import InvalidHost, InvalidSubject, Subject

__all__ = ["requeue"]

_REQUEUED = "Log-Requeued"
"""Header that tells a message that was put back: its sequence before, and the hash of its payload."""
_KEPT = ("Content-Encoding",)
_NO_MESSAGE_FOUND = 10037
_PAUSE = 0.2  # seconds before a publish whose acknowledgement was lost is looked for


class _About(BaseModel):
    subject: str
    sequence: NonNegativeInt
    reason: str
    headers: dict[str, str]
    bytes: NonNegativeInt


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message that was set aside, as its file says."""

    subject: str
    sequence: int
    reason: str
    headers: Mapping[str, str]
    payload: bytes

    @property
    def new_headers(self) -> dict[str, str]:
        """The headers that it is published with."""
        kept = {name: self.headers[name] for name in _KEPT if name in self.headers}
        return {**kept, _REQUEUED: self.tag}

    @property
    def tag(self) -> str:
        """What tells it from every other message."""
        return f"{self.sequence}-{hashlib.sha256(self.payload).hexdigest()[:32]}"

    def lines(self) -> int:
        """Return how many lines it holds; raises ValueError kinds where a receiver would set it aside again."""
        Subject.parse(self.subject)
        return len(decode_payload(self.new_headers, self.payload).splitlines())


class RequeueProgress(BaseModel):
    """How many messages of a file are back, and behind which sequence of which stream the next one is published."""

    done: NonNegativeInt = 0
    after: NonNegativeInt | None = None
    created: str = ""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@settings_options(BrokerSettings, STATUS_FIELDS)
def requeue(file: Path, **options: Any) -> None:
    """Put the messages of a quarantine file of a receiver (OUTPUT/.quarantine/*.msg) back into their stream.

    Their lines come to the end of the file of the host. FILE is then called FILE.requeued.
    """
    settings = given(BrokerSettings, options)
    program.log_to_stderr(settings)
    messages, lines = _readable(file)
    asking(settings, "requeue", lambda connection: _put_back(connection, file, messages))
    with telling(file), open_folder(file.parent) as folder:
        folder.rename(file.name, f"{file.name}.requeued")
        folder.remove(_progress_of(file).name)
        folder.sync()
    click.echo(f"{len(messages)} messages with {lines} lines are back; the file is {file}.requeued")


def _readable(file: Path) -> tuple[list[Quarantined], int]:
    """Return the messages of a file that can be read by now, and how many lines they hold; says which cannot."""
    found, lines = [], 0
    for message in _read(file):
        try:
            lines += message.lines()
        except (MalformedMessage, InvalidHost, InvalidSubject) as error:
            words = f"message {message.sequence} of {message.subject} still cannot be read, and is left out: {error}"
            click.echo(printable(words), err=True)
        else:
            found.append(message)
    if not found:
        raise OperatorError(f"no message of {file} can be read; nothing was put back")
    return found, lines


def _read(file: Path) -> Iterator[Quarantined]:
    try:
        data = read_file(file)
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    place = 0
    while place < len(data):
        end = data.find(b"\n", place)
        try:
            about = _About.model_validate_json(data[place : end if end >= 0 else len(data)])
        except ValidationError:
            raise _damaged(file, place) from None
        payload = data[end + 1 : end + 1 + about.bytes]
        if len(payload) < about.bytes:
            raise _damaged(file, place)
        yield Quarantined(about.subject, about.sequence, about.reason, about.headers, payload)
        place = end + 1 + about.bytes + 1  # a newline stands between messages


def _damaged(file: Path, place: int) -> ConfigurationError:
    return ConfigurationError(
        f"{file} is no quarantine file of a receiver, or damaged: no message at byte {place}; nothing was put back"
    )


def _progress_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.progress")


def _load(file: Path) -> RequeueProgress:
    try:
        return RequeueProgress.model_validate_json(read_file(_progress_of(file)))
    except FileNotFoundError:
        return RequeueProgress()
    except (OSError, ValidationError) as error:
        raise ConfigurationError(f"cannot read {_progress_of(file)}: {error}") from None


async def _put_back(connection: Connection, file: Path, messages: list[Quarantined]) -> None:
    progress = _load(file)
    for done, message in enumerate(messages):
        if done < progress.done:
            continue
        stream = await _stream_of(connection, message.subject)
        created, first = await _state(connection, stream)
        if progress.after is None:
            last = await _found(connection, stream, {"last_by_subj": message.subject})
            progress = RequeueProgress(
                done=done, after=last.sequence if last else 0, created=created
            )
            write_whole(_progress_of(file), progress.model_dump_json())
            is_known = True
        else:
            is_known = progress.created == created and first <= progress.after + 1
        await _publish_once(connection, stream, message, progress.after or 0, is_known=is_known)
        progress = RequeueProgress(done=done + 1)
        write_whole(_progress_of(file), progress.model_dump_json())


@dataclass(frozen=True, slots=True)
class _Found:
    sequence: int
    tag: str


async def _publish_once(
    connection: Connection, stream: str, message: Quarantined, after: int, *, is_known: bool
) -> None:
    """Publish a message unless it is behind the sequence `after`; `is_known` says whether all that was there still is."""
    while (last := await _last_but(connection, stream, message, after)) is not None:
        if not is_known:
            raise OperatorError(
                f"an earlier run was interrupted at message {message.sequence} of {message.subject}, and stream {stream} has "
                "lost messages since: look for its lines in the file of the host; where they are missing remove "
                "FILE.progress and run this again, else rename FILE"
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


async def _last_but(
    connection: Connection, stream: str, message: Quarantined, after: int
) -> int | None:
    """Return the last sequence of the subject, at least `after`; None where the message is behind that."""
    last = after
    while one := await _found(
        connection, stream, {"seq": last + 1, "next_by_subj": message.subject}
    ):
        if one.tag == message.tag:
            return None
        last = one.sequence
    return last


async def _found(connection: Connection, stream: str, asked: Mapping[str, Any]) -> _Found | None:
    """Return the message of a stream that is asked for, by its leader; None where there is none."""
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{stream}", asked)
    except Rejected as error:
        if error.error == _NO_MESSAGE_FOUND:
            return None
        raise
    head = base64.b64decode(answer["message"].get("hdrs", ""))
    headers = Arrived("", "", head, b"").headers or {}
    return _Found(answer["message"]["seq"], headers.get(_REQUEUED, ""))


async def _stream_of(connection: Connection, subject: str) -> str:
    names = (await connection.api("STREAM.NAMES", {"subject": subject})).get("streams") or []
    if not names:
        raise OperatorError(f"no stream takes {subject} any more; its partition does not exist")
    return str(names[0])


async def _state(connection: Connection, stream: str) -> tuple[str, int]:
    info = await connection.api(f"STREAM.INFO.{stream}")
    return str(info["created"]), int(info["state"]["first_seq"])
