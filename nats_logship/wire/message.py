r"""One message of the stream: lines of one or more files of a host, and headers that describe them.

A shipper publishes this message to `logs.p2.web01`. It holds two lines of one file and one of
another file:

    Log-Agent: 1790000000000-5f3a9c01
    Log-Read-At: 1790000000123456789
    Log-Spans: [{"file":"/var/log/app.log","id":"1790000000000-5f3a9c01.1","start":4096,
                 "end":4106,"size":10,"lines":2,"identity":"1050:1024:9f86d081:64:1b4f0e98"},
                {"file":"/var/log/db.log","id":"1790000000000-5f3a9c01.2","start":0,"end":6,
                 "size":6,"lines":1,"identity":"1051:6:60303ae2:6:60303ae2"}]
    Nats-Expected-Last-Subject-Sequence: 41

    start\nend\nready\n

`Log-Spans` is one line of JSON: an entry for each file. In this module an entry is a `Section`, its
`id`, `start` and `end` are the section's `Span`. The payload is the bytes of the sections
in the same order. `Content-Encoding: zstd` says that the payload is compressed. A message with
`Log-Agent` and without `Log-Spans` is a claim: it has no lines, and may have `Log-Follows` or
`Log-Moved`. A message without `Log-Agent` comes from another NATS client: its payload is lines.

`decode_origin(encode_origin(origin)) == origin`. This module does no I/O. docs/protocol.md
specifies the same headers for authors of other shippers.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec
import zstandard

from nats_logship.app.text import format_count
from nats_logship.wire.records import MAX_RECORDS_BYTES
from nats_logship.wire.streams import MAX_PARTITIONS

_AGENT, _READ_AT, _SPANS = "Log-Agent", "Log-Read-At", "Log-Spans"
_FOLLOWS, _MOVED, _ENCODING = "Log-Follows", "Log-Moved", "Content-Encoding"
EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
"""The server stores a message only if this is the last sequence of its subject.

The stored message keeps the header.
"""
IMPOSSIBLE_SEQUENCE = 2**62
"""Publish with this to learn a subject's last sequence: the leader refuses, and names it."""

MAX_LINES_BYTES = 16 * 1024 * 1024  # of lines in a message, decompressed
MAX_SPANS_BYTES = 60_000  # of `Log-Spans`; nats-server accepts 64 KiB of headers in all
MAX_ID_BYTES = 128  # of a file id or an agent id: a receiver stores them for weeks
MAX_FOLLOWED = 16  # partitions in `Log-Follows`: a receiver sends a request about each
MAX_PATH_BYTES = 4096  # of a source file's path: PATH_MAX of Linux
# Bytes of content for each byte of a zstd frame: no log compresses better. A frame with a window of
# 1 KiB stays below: its blocks hold at most 1 KiB and take 4 bytes or more.
MAX_RATIO = 256
ALWAYS_BYTES = 16 * 1024  # of content that a zstd frame may have at any ratio
_MAX_SHOWN = 100  # characters of a bad header in an error message
_MAX_POSITION = 2**63 - 1  # of any file system
_MAX_NUMBER = 2**64 - 1  # some file systems have inodes of 64 bits
_SECTION_BYTES = 220  # of a section in `Log-Spans`, without its path, file id and hashes
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_TOKEN = f"not 1 to {MAX_ID_BYTES} characters of printable ASCII without spaces"
# a hash has at most the 128 hex digits of SHA-512; int() of millions of digits would take seconds
_IDENTITY = re.compile(r"([0-9]{1,20}):([0-9]{1,20}):([^:]{,128}):([0-9]{1,20}):([^:]{,128})")


Unit = Literal["bytes", "entries"]
"""What the positions of a source count: bytes of a file, or entries of a journal."""

Rest = Literal["", "kept", "left out"]
"""What becomes of the rest of a record or line that a section ends inside of; empty: of none."""


class MalformedMessage(ValueError):
    """The headers of a shipper break the rules, or the payload cannot be decompressed."""


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range `[start, end)` of the source file with the id `file_id`.

    It counts bytes, or entries of a journal. A file keeps its id when it is renamed. Raises
    `MalformedMessage` for a bad id.
    """

    file_id: str
    start: int
    end: int

    def __post_init__(self) -> None:
        """Check the file id."""
        if not _is_token(self.file_id):
            raise MalformedMessage(f"file id {_shorten(self.file_id)} is {_TOKEN}")

    def __str__(self) -> str:
        return f"{self.file_id}:{self.start}-{self.end}"


class Identity(NamedTuple):
    """The facts by which a shipper recognises a file: its inode and two hashes of its bytes.

    The head is the first bytes of the file, at most 1 KiB. The tail is the `tail_length` bytes
    that end at a position: at `end` of a span, or at the offset of a cursor. Hashes are hex digits.
    """

    inode: int
    head_length: int
    head_hash: str
    tail_length: int
    tail_hash: str

    def __str__(self) -> str:
        head, tail = f"{self.head_length}:{self.head_hash}", f"{self.tail_length}:{self.tail_hash}"
        return f"{self.inode}:{head}:{tail}"

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """Read the text of `str()`; raises `MalformedMessage`."""
        if found := _IDENTITY.fullmatch(text):
            inode, head_length, head_hash, tail_length, tail_hash = found.groups()
            numbers = int(inode), int(head_length), int(tail_length)
            if max(numbers) <= _MAX_NUMBER:
                return cls(numbers[0], numbers[1], head_hash, numbers[2], tail_hash)
        raise MalformedMessage(
            f"identity {_shorten(text)} is not <inode>:<length>:<hash>:<length>:<hash>"
        )


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a message from one file: `size` bytes of payload with `lines` newlines.

    `size` is the length of the span, or less if a filter left out lines (`filtered`). Without an
    `identity` the file cannot be read again from the end of the span, because the span ends inside
    a line or the source is a pipe. If the span counts entries (`unit`), its length says nothing
    about the size. `records` says how lines are joined, as `parse_records` reads it; empty: each
    line is alone. By `rest` a shipper reads on. Raises `MalformedMessage` for impossible sizes.
    """

    path: str
    span: Span
    size: int
    lines: int
    identity: Identity | None = None
    filtered: bool = False
    unit: Unit = "bytes"
    records: str = ""
    rest: Rest = ""

    def __post_init__(self) -> None:
        """Check the sizes: with impossible ones a receiver would lose lines of other files."""
        length = self.span.end - self.span.start
        if length < 0 or (self.unit == "bytes" and not self._fits(length)):
            size = format_count(self.size, "byte")
            raise MalformedMessage(f"span {self.span} does not match {size} of lines")
        if self.lines > self.size:
            size, lines = format_count(self.size, "byte"), format_count(self.lines, "line")
            raise MalformedMessage(f"{size} cannot hold {lines}")

    def _fits(self, length: int) -> bool:
        return self.size <= length if self.filtered else self.size == length

    @property
    def is_divisible(self) -> bool:
        """Whether byte N of its lines is byte `start + N` of the file."""
        return self.unit == "bytes" and not self.filtered


@dataclass(frozen=True, slots=True)
class Followed:
    """The end of a host's lines in an older partition: the sequence of the last claim there."""

    partition: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The content of our headers.

    `agent` is the id of the shipper's run, `read_at` the time at which the first line was read, in
    nanoseconds since the epoch. An origin without sections is a claim. If the number of partitions
    changes, a host's lines move: a claim in the old partition names the new one (`moved`), a claim
    in the new one names the ends in the old ones (`follows`).
    """

    agent: str
    read_at: int
    sections: tuple[Section, ...] = ()
    compressed: bool = False
    follows: tuple[Followed, ...] = ()
    moved: int | None = None

    @property
    def lines(self) -> int:
        """The number of lines in the message."""
        return sum(section.lines for section in self.sections)

    @property
    def size(self) -> int:
        """The bytes of lines in the message, decompressed."""
        return sum(section.size for section in self.sections)


def encode_origin(origin: Origin) -> dict[str, str]:
    """Return the headers of a message."""
    headers = {_AGENT: origin.agent, _READ_AT: str(origin.read_at)}
    if origin.sections:
        headers[_SPANS] = f"[{','.join(map(_encode_section, origin.sections))}]"
    if origin.follows:
        headers[_FOLLOWS] = ",".join(f"{one.partition}:{one.sequence}" for one in origin.follows)
    if origin.moved is not None:
        headers[_MOVED] = str(origin.moved)
    if origin.compressed:
        headers[_ENCODING] = "zstd"
    return headers


def _encode_section(section: Section) -> str:
    span, identity = section.span, section.identity
    return (
        f'{{"file":{_quote(section.path)},"id":{json.dumps(span.file_id)},"start":{span.start}'
        f',"end":{span.end},"size":{section.size},"lines":{section.lines}'
        + ("" if identity is None else f',"identity":{json.dumps(str(identity))}')
        + ("" if section.unit == "bytes" else f',"unit":"{section.unit}"')
        + (',"filtered":true' if section.filtered else "")
        + (f',"records":{_quote(section.records)}' if section.records else "")
        + (f',"rest":"{section.rest}"}}' if section.rest else "}")
    )


def estimate_size(section: Section) -> int:
    """Return an upper bound of a section's bytes in `Log-Spans`, without encoding the section."""
    identity = section.identity
    hashes = len(identity.head_hash) + len(identity.tail_hash) if identity else 0
    texts = len(_quote(section.path)) + len(_quote(section.records))
    return texts + 2 * len(section.span.file_id) + hashes + _SECTION_BYTES


def decode_origin(headers: Mapping[str, str] | None) -> Origin | None:
    """Read the headers of a message; return None for a message of another NATS client.

    Raises `MalformedMessage` for headers of ours that break the rules.
    """
    if not headers:
        return None
    if _AGENT not in headers:
        if _SPANS in headers:
            raise MalformedMessage(f"{_SPANS} without {_AGENT}")
        return None
    agent, read_at = headers[_AGENT], headers.get(_READ_AT, "")
    if not _is_token(agent):
        raise MalformedMessage(f"{_AGENT} {_shorten(agent)} is {_TOKEN}")
    if not _is_number(read_at):
        raise MalformedMessage(f"{_READ_AT} {_shorten(read_at)} is not a number")
    sections = _decode_sections(headers[_SPANS]) if _SPANS in headers else ()
    follows = _decode_follows(headers[_FOLLOWS]) if _FOLLOWS in headers else ()
    moved = _decode_partition(headers[_MOVED]) if _MOVED in headers else None
    if sections and (follows or moved is not None):
        raise MalformedMessage(f"{_FOLLOWS} and {_MOVED} are for a claim, which has no lines")
    return Origin(
        agent=agent,
        read_at=int(read_at),
        sections=sections,
        compressed=_is_compressed(headers),
        follows=follows,
        moved=moved,
    )


_Position = Annotated[int, msgspec.Meta(ge=0, le=_MAX_POSITION)]


class _Entry(msgspec.Struct):
    """A section as `Log-Spans` has it; unknown fields are passed over."""

    file: str
    id: str
    start: _Position
    end: _Position
    size: _Position
    lines: _Position
    identity: str | msgspec.UnsetType = msgspec.UNSET
    filtered: bool = False
    unit: Unit = "bytes"
    records: object = ""
    rest: Rest = ""


_entries = msgspec.json.Decoder(list[_Entry])


def _decode_sections(text: str) -> tuple[Section, ...]:
    try:
        entries = _entries.decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"{_SPANS} {_shorten(text)} has no sections: {error}") from None
    if not entries:
        raise MalformedMessage(f"{_SPANS} has no sections")
    sections = tuple(map(_decode_section, entries))
    if (size := sum(section.size for section in sections)) > MAX_LINES_BYTES:
        raise MalformedMessage(f"{_SPANS} states {size} bytes, more than {MAX_LINES_BYTES}")
    return sections


def _decode_section(entry: _Entry) -> Section:
    identity = entry.identity
    return Section(
        path=unquote_path(entry.file),
        span=Span(entry.id, entry.start, entry.end),
        size=entry.size,
        lines=entry.lines,
        identity=None if identity is msgspec.UNSET else Identity.parse(identity),
        filtered=entry.filtered,
        unit=entry.unit,
        records=_decode_records(entry.records),
        rest=entry.rest,
    )


def _decode_records(value: object) -> str:
    """Return how lines are joined; empty for a value that breaks the rules: lines are not lost."""
    if value == "":
        return ""
    with suppress(MalformedMessage):
        text = unquote_path(value) if isinstance(value, str) else ""
        if len(text.encode("utf-8", "surrogateescape")) <= MAX_RECORDS_BYTES:
            return text
    return ""


def _decode_follows(text: str) -> tuple[Followed, ...]:
    found = []
    entries = text.split(",", MAX_FOLLOWED)
    if len(entries) > MAX_FOLLOWED:
        raise MalformedMessage(f"{_FOLLOWS} has more than {MAX_FOLLOWED} entries")
    for entry in entries:
        partition, _, sequence = entry.partition(":")
        if not _is_number(sequence):
            raise MalformedMessage(f"{_FOLLOWS} {_shorten(entry)} is not <partition>:<sequence>")
        found.append(Followed(_decode_partition(partition), int(sequence)))
    return tuple(found)


def _decode_partition(text: str) -> int:
    if not _is_number(text) or int(text) >= MAX_PARTITIONS:
        raise MalformedMessage(f"{_shorten(text)} in {_FOLLOWS} or {_MOVED} is not a partition")
    return int(text)


def _is_compressed(headers: Mapping[str, str]) -> bool:
    encoding = headers.get(_ENCODING, "")
    if encoding not in {"", "zstd"}:
        raise MalformedMessage(f"{_ENCODING} {_shorten(encoding)} is not known; only zstd is")
    return encoding == "zstd"


def decode_payload(
    headers: Mapping[str, str] | None,
    payload: bytes,
    decompressor: zstandard.ZstdDecompressor | None = None,
) -> bytes:
    """Return the lines of a message, decompressed; the last line may have no newline.

    Raises `MalformedMessage` for an unknown encoding, and as `decompress` does.
    """
    if not headers or not _is_compressed(headers):
        return payload
    return decompress(payload, MAX_LINES_BYTES, decompressor)


def split_sections(origin: Origin, payload: bytes) -> list[tuple[Section, bytes]]:
    """Return each section with its part of the decompressed payload, in order.

    Raises `MalformedMessage` if the sections are not exactly as long as the payload.
    """
    if origin.size != len(payload):
        raise MalformedMessage(f"sections of {origin.size} bytes, lines of {len(payload)}")
    parts, start = [], 0
    for section in origin.sections:
        part = payload[start : start + section.size]  # a slice of all bytes is no copy
        parts.append((section, part))
        start += section.size
    return parts


def limit_content(size: int) -> int:
    """Return the bytes of content that a zstd frame of `size` bytes may have."""
    return max(ALWAYS_BYTES, MAX_RATIO * size)


def decompress(
    frame: bytes, most: int, decompressor: zstandard.ZstdDecompressor | None = None
) -> bytes:
    """Return the content of a client's zstd frame, at most `most` bytes.

    Making a decompressor costs more than decompressing a small frame: one thread may use the same
    one again. Raises `MalformedMessage` for a damaged frame and for bytes after the frame. These
    are refused before decompression: an unknown or too large size, no bytes, and a bad ratio.
    """
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 < size <= most:
            raise MalformedMessage(f"zstd frame of unknown size, of no bytes, or over {most} bytes")
        if size > limit_content(len(frame)):
            raise MalformedMessage(
                f"zstd frame of {len(frame)} bytes states {size} bytes of content, more than "
                f"{MAX_RATIO} times as many"
            )
        decompressor = decompressor or zstandard.ZstdDecompressor()
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise MalformedMessage(f"damaged zstd frame: {error}") from error


def quote_path(path: str) -> str:
    """Return a path in printable ASCII: it may hold any byte but NUL, JSON only characters."""
    return quote_from_bytes(path.encode("utf-8", "surrogateescape"), safe=_PLAIN)


@lru_cache(4096)
def _quote(path: str) -> str:
    return json.dumps(quote_path(path))


def unquote_path(text: str) -> str:
    """Return the path of a text of `quote_path`; raises `MalformedMessage`."""
    if "%" not in text and text.isascii() and len(text) <= MAX_PATH_BYTES:
        return text
    try:
        raw = unquote_to_bytes(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise MalformedMessage(f"'file' in {_SPANS} holds half a surrogate pair") from None
    if len(raw) > MAX_PATH_BYTES:
        raise MalformedMessage(f"'file' in {_SPANS} has more than {MAX_PATH_BYTES} bytes")
    return raw.decode("utf-8", "surrogateescape")


@lru_cache(4096)
def _is_token(text: str) -> bool:
    is_plain = text.isascii() and text.isprintable() and " " not in text
    return is_plain and 0 < len(text) <= MAX_ID_BYTES


def _is_number(text: str) -> bool:
    # 20 digits are enough; int() of millions of digits would take seconds
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _MAX_NUMBER


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…")
