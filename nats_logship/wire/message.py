"""One message of the stream: whole lines of one or more files of a host, and the headers that say where they came from.

Encodes and decodes; knows nothing of files, connections or time. `decode_origin(encode_origin(o)) == o`. The page
docs/protocol.md says the same for who writes another shipper.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import quote_from_bytes, unquote_to_bytes

import zstandard

from nats_logship.app.text import format_count
from nats_logship.wire.streams import MAX_PARTITIONS

EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
"""The header by which the server compares the last sequence of a subject before it stores a message, and keeps it with it."""
IMPOSSIBLE_SEQUENCE = 2**62
"""A sequence that no subject comes to: a message that expects it is always refused, and the refusal comes from the leader."""

MAX_LINES_BYTES = 16 * 1024 * 1024
"""The most lines of one message, in bytes, decompressed: a bound on what a damaged or hostile message can cost."""

MAX_RATIO = 256
"""The most bytes that a byte of a compressed payload may stand for; no log has such a ratio.

A zstd frame with a window of 1 KiB never has a higher one: each of its blocks holds 1 KiB at most,
and takes 4 bytes at least.
"""

ALWAYS_BYTES = 16 * 1024
"""So many bytes a compressed payload may hold, however small it is."""

MAX_SPANS_BYTES = 60_000
"""The most that `Log-Spans` may hold, in bytes: nats-server takes headers of 64 KiB in all."""

MAX_ID_BYTES = 128
"""The longest file id, or agent id: a receiver remembers each for weeks."""

MAX_FOLLOWED = 16
"""The most partitions that one claim follows: a receiver asks about each."""

MAX_PATH_BYTES = 4096
"""The longest path of a source file: PATH_MAX of Linux."""

_MOST_HASH = 128  # hex digits; those of SHA-512
_MOST_SHOWN = 100  # characters of a wrong header in the reason why it is wrong

_SPANS, _AGENT, _READ_AT = "Log-Spans", "Log-Agent", "Log-Read-At"
_FOLLOWS, _MOVED = "Log-Follows", "Log-Moved"
_ENCODING = "Content-Encoding"
_MOST_OF_THE_REST = 180  # bytes of a section in `Log-Spans`: names and numbers
_LARGEST_POSITION = 2**63  # of any file system
_MOST_NUMBER = 2**64 - 1  # some file systems have inodes of all 64 bits
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class MalformedMessage(ValueError):
    """A message that carries our headers and breaks their rules, or whose payload cannot be decompressed."""


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open byte range `[start, end)` of a source file; `file` is the id that stays with it through renames.

    Raises `MalformedMessage` for an id that is empty, has more than `MAX_ID_BYTES`, or anything but printable ASCII.
    """

    file: str
    start: int
    end: int

    def __post_init__(self) -> None:
        """Refuse a bad id, whoever makes it."""
        if not _is_token(self.file):
            raise MalformedMessage(f"file id {_shown(self.file)} is {_TOKEN}")

    def __str__(self) -> str:
        return f"{self.file}:{self.start}-{self.end}"


@dataclass(frozen=True, slots=True)
class Identity:
    """What recognises a file again: its inode, a hash of its first bytes, and one of the bytes before a position.

    `head_length` is at most 1 KiB and never more than what had been read; `tail_length` bytes end at the position that
    the identity goes with (a span's end, a cursor's offset). Hashes are hex; an empty range has the hash of no bytes.
    """

    inode: int
    head_length: int
    head_hash: str
    tail_length: int
    tail_hash: str

    def __str__(self) -> str:
        return (
            f"{self.inode}:{self.head_length}:{self.head_hash}:{self.tail_length}:{self.tail_hash}"
        )

    @classmethod
    def parse(cls, text: str) -> "Identity":
        """Read what `str()` made; raise `MalformedMessage` when it is anything else."""
        parts = text.split(":")
        if len(parts) != 5 or not all(map(_is_number, (parts[0], parts[1], parts[3]))):
            raise MalformedMessage(
                f"identity {_shown(text)} is not <inode>:<length>:<hash>:<length>:<hash>"
            )
        if len(parts[2]) > _MOST_HASH or len(parts[4]) > _MOST_HASH:
            raise MalformedMessage(f"a hash of an identity has more than {_MOST_HASH} digits")
        return cls(int(parts[0]), int(parts[1]), parts[2], int(parts[3]), parts[4])


@dataclass(frozen=True, slots=True)
class Section:
    """What a message holds of one file: `size` bytes of its payload, in which there are `lines` newlines.

    `path` is the file's as it was followed. `size` is the span's length; less where bytes of the span were left out on
    purpose (`filtered`): nobody can tell then by the span where in the source a byte of the payload was. `identity` is
    None where the source cannot be read again from the span's end: inside a section that was too large for one message.

    Raises `MalformedMessage` for sizes that cannot be true.
    """

    path: str
    span: Span
    size: int
    lines: int
    identity: Identity | None = None
    filtered: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be true: to go by it would lose the lines of others."""
        length, size = self.span.end - self.span.start, format_count(self.size, "byte")
        if length < 0 or self.size > length or (self.size < length and not self.filtered):
            raise MalformedMessage(f"span {self.span} does not go with {size} of lines")
        if self.lines > self.size:
            raise MalformedMessage(
                f"{format_count(self.lines, 'line', 'do')} not go with {size} of lines"
            )


@dataclass(frozen=True, slots=True)
class Followed:
    """The end of a host's lines in a partition that had them before: the sequence of the claim that says so."""

    partition: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the lines of a message came from, as its headers say: one section after the other.

    `read_at` is when the first of them was read, in nanoseconds since the epoch. A message without sections is a claim, and carries no lines: the
    first message of an agent, which fences older agents of the same host. With another number of partitions a host's
    lines move to another partition: the claim there `follows` the last sequence in each one that had them before, and
    the claim that ends them in such a one says where they have `moved`.
    """

    agent: str
    read_at: int
    sections: tuple[Section, ...] = ()
    compressed: bool = False
    follows: tuple[Followed, ...] = ()
    moved: int | None = None

    @property
    def lines(self) -> int:
        """How many lines the message holds."""
        return sum(section.lines for section in self.sections)

    @property
    def size(self) -> int:
        """How many bytes of lines the message holds, decompressed."""
        return sum(section.size for section in self.sections)


def encode_origin(origin: Origin) -> dict[str, str]:
    """Return the headers of a message."""
    headers = {_AGENT: origin.agent, _READ_AT: str(origin.read_at)}
    if origin.sections:
        headers[_SPANS] = f"[{','.join(map(_encode, origin.sections))}]"
    if origin.follows:
        headers[_FOLLOWS] = ",".join(f"{one.partition}:{one.sequence}" for one in origin.follows)
    if origin.moved is not None:
        headers[_MOVED] = str(origin.moved)
    if origin.compressed:
        headers[_ENCODING] = "zstd"
    return headers


def encoded_size(section: Section) -> int:
    """Return how many bytes of `Log-Spans` a section takes at most, without encoding it; hashes are hex digits."""
    identity = section.identity
    hashes = len(identity.head_hash) + len(identity.tail_hash) if identity else 0
    return len(_quoted(section.path)) + 2 * len(section.span.file) + hashes + _MOST_OF_THE_REST


def decode_origin(headers: Mapping[str, str] | None) -> Origin | None:
    """Read the headers of a message; None where none is ours, as any NATS client may publish lines. Raises `MalformedMessage` where ours do not hold together."""
    if not headers:
        return None
    if _AGENT not in headers:
        if _SPANS in headers:
            raise MalformedMessage(f"{_SPANS} without {_AGENT}")
        return None
    agent, read_at = headers[_AGENT], headers.get(_READ_AT, "")
    if not _is_token(agent):
        raise MalformedMessage(f"{_AGENT} {_shown(agent)} is {_TOKEN}")
    if not _is_number(read_at):
        raise MalformedMessage(f"{_READ_AT} {_shown(read_at)} is not a number")
    sections = _decode(headers[_SPANS]) if _SPANS in headers else ()
    follows = _decode_follows(headers[_FOLLOWS]) if _FOLLOWS in headers else ()
    moved = _partition(headers[_MOVED]) if _MOVED in headers else None
    if sections and (follows or moved is not None):
        raise MalformedMessage(f"{_FOLLOWS} and {_MOVED} are for a claim, which has no lines")
    return Origin(agent, int(read_at), sections, _is_compressed(headers), follows, moved)


def largest_content(size: int) -> int:
    """Return how many bytes a zstd frame of `size` bytes may hold."""
    return max(ALWAYS_BYTES, MAX_RATIO * size)


def decompress(
    frame: bytes, most: int, decompressor: zstandard.ZstdDecompressor | None = None
) -> bytes:
    """Return what a zstd frame of a client holds, which is `most` bytes at most.

    To make a `decompressor` costs more than to decompress a small frame; one thread at a time may
    use it again and again. Raises `MalformedMessage` for a frame that is damaged or has something
    behind it, and, without decompressing it, for one that does not say its size, is empty, too
    large, or of a ratio that no log has.
    """
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 < size <= most:
            raise MalformedMessage(f"zstd frame of unknown size, of no bytes, or over {most} bytes")
        if size > largest_content(len(frame)):
            raise MalformedMessage(
                f"zstd frame of {len(frame)} bytes that says it holds {size}: more than "
                f"{MAX_RATIO} times as many, which no log is compressed to"
            )
        decompressor = decompressor or zstandard.ZstdDecompressor()
        return decompressor.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise MalformedMessage(f"damaged zstd frame: {error}") from error


def decode_payload(
    headers: Mapping[str, str] | None,
    payload: bytes,
    decompressor: zstandard.ZstdDecompressor | None = None,
) -> bytes:
    """Return the lines of a message, decompressed; a missing last newline is the reader's to add.

    Raises `MalformedMessage` for an unknown encoding, and as `decompress` does.
    """
    if not headers or not _is_compressed(headers):
        return payload
    return decompress(payload, MAX_LINES_BYTES, decompressor)


def split_sections(origin: Origin, lines: bytes) -> list[tuple[Section, bytes]]:
    """Return each section of a message with its part of the decompressed lines, in order; raises `MalformedMessage` where the sections do not make up the lines exactly."""
    if origin.size != len(lines):
        raise MalformedMessage(f"sections of {origin.size} bytes, lines of {len(lines)}")
    parts, start = [], 0
    for section in origin.sections:
        parts.append((section, lines[start : start + section.size]))  # no copy of all of it
        start += section.size
    return parts


def _encode(section: Section) -> str:
    span, identity = section.span, section.identity
    return (
        f'{{"file":{_quoted(section.path)},"id":{json.dumps(span.file)},"start":{span.start},"end":{span.end},'
        f'"size":{section.size},"lines":{section.lines}'
        + ("" if identity is None else f',"identity":{json.dumps(str(identity))}')
        + (',"filtered":true}' if section.filtered else "}")
    )


def _decode(text: str) -> tuple[Section, ...]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"{_SPANS} {_shown(text)} is not JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise MalformedMessage(f"{_SPANS} {_shown(text)} is not a JSON array of sections")
    sections = tuple(map(_section, entries))
    if (size := sum(section.size for section in sections)) > MAX_LINES_BYTES:
        raise MalformedMessage(f"{_SPANS} claims {size} bytes, more than {MAX_LINES_BYTES}")
    return sections


def _section(entry: Any) -> Section:
    try:
        path, file, identity = entry["file"], entry["id"], entry.get("identity", "")
        numbers = entry["start"], entry["end"], entry["size"], entry["lines"]
    except (TypeError, KeyError, AttributeError) as error:
        raise MalformedMessage(f"a section in {_SPANS} lacks {_shown(str(error))}") from None
    is_counted = all(type(one) is int and 0 <= one < _LARGEST_POSITION for one in numbers)
    if not is_counted or not all(isinstance(one, str) for one in (path, file, identity)):
        raise MalformedMessage(f"section {_shown(repr(entry))} in {_SPANS} is not one")
    start, end, size, lines = numbers
    return Section(
        path=_path(path),
        span=Span(file, start, end),
        size=size,
        lines=lines,
        identity=Identity.parse(identity) if "identity" in entry else None,
        filtered=entry.get("filtered") is True,
    )


def _decode_follows(text: str) -> tuple[Followed, ...]:
    ends = text.split(",", MAX_FOLLOWED)
    if len(ends) > MAX_FOLLOWED:
        raise MalformedMessage(f"{_FOLLOWS} {_shown(text)} has more than {MAX_FOLLOWED} entries")
    return tuple(map(_followed, ends))


def _followed(text: str) -> Followed:
    partition, _, sequence = text.partition(":")
    if not _is_number(sequence):
        raise MalformedMessage(f"{_FOLLOWS} {_shown(text)} is not <partition>:<sequence>")
    return Followed(_partition(partition), int(sequence))


def _partition(text: str) -> int:
    if not _is_number(text) or int(text) >= MAX_PARTITIONS:
        raise MalformedMessage(f"{_FOLLOWS} or {_MOVED}: {_shown(text)} is no partition")
    return int(text)


def _path(text: str) -> str:
    try:
        # of a header that is not UTF-8: as it came
        raw = unquote_to_bytes(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise MalformedMessage(f"'file' in {_SPANS} holds half a surrogate pair") from None
    if len(raw) > MAX_PATH_BYTES:
        raise MalformedMessage(f"'file' in {_SPANS} has more than {MAX_PATH_BYTES} bytes")
    return raw.decode("utf-8", "surrogateescape")


def _is_compressed(headers: Mapping[str, str]) -> bool:
    encoding = headers.get(_ENCODING, "")
    if encoding not in {"", "zstd"}:
        raise MalformedMessage(f"{_ENCODING} {_shown(encoding)} is not known; only zstd is")
    return encoding == "zstd"


_TOKEN = f"not 1 to {MAX_ID_BYTES} characters of printable ASCII without spaces"


def _is_token(text: str) -> bool:
    return (
        0 < len(text) <= MAX_ID_BYTES and text.isascii() and text.isprintable() and " " not in text
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")


def _is_number(text: str) -> bool:
    # as many digits as the most has, so that nobody makes us read a number of millions
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _MOST_NUMBER


@lru_cache(4096)
def _quoted(path: str) -> str:
    # a path may hold any byte but NUL, and JSON only characters
    return json.dumps(quote_from_bytes(path.encode("utf-8", "surrogateescape"), safe=_PLAIN))
