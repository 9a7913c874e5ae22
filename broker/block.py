"""One message of the stream: whole lines of one file as bytes, and the headers that say where they came from.

Encodes and decodes; knows nothing of files, connections or time. `decode(encode(b)) == b`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote_from_bytes, unquote_to_bytes

import zstandard

__all__ = [
    "MAX_LINES_BYTES",
    "Block",
    "Identity",
    "MalformedBlock",
    "Origin",
    "Span",
    "decode_origin",
    "decode_payload",
    "encode_origin",
    "file_of",
    "has_ours",
]

MAX_LINES_BYTES = 64 * 1024 * 1024
"""The most that a payload may unfold to, in bytes: a bound on what a damaged or hostile message can cost."""

_FILE, _SPAN, _IDENTITY = "Log-File", "Log-Span", "Log-Identity"
_LINES, _AGENT, _READ_AT = "Log-Lines", "Log-Agent", "Log-Read-At"
_FILTERED = "Log-Filtered"
_ENCODING = "Content-Encoding"
_MOST_NUMBER = 2**64 - 1  # some file systems have inodes of all 64 bits
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class MalformedBlock(ValueError):
    """A message that carries our headers and breaks their rules, or whose payload cannot be unfolded."""


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open byte range `[start, end)` of a source file; `file` is the id that stays with it through renames."""

    file: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.file}:{self.start}-{self.end}"

    @classmethod
    def parse(cls, text: str) -> "Span":
        """Read `<file id>:<start>-<end>`; raise `MalformedBlock` when it is anything else."""
        file, _, numbers = text.rpartition(":")
        start, _, end = numbers.partition("-")
        if not (file and _is_number(start) and _is_number(end) and int(start) <= int(end)):
            raise MalformedBlock(f"{_SPAN} {text!r} is not <file id>:<start>-<end>")
        return cls(file, int(start), int(end))


@dataclass(frozen=True, slots=True)
class Identity:
    """What recognises a file again: its inode, a hash of its first bytes, and one of the bytes before an offset.

    `head_length` is at most 1 KiB and never more than what had been read; `tail_length` bytes end at the offset that
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
        """Read what `str()` made; raise `MalformedBlock` when it is anything else."""
        parts = text.split(":")
        if len(parts) != 5 or not all(map(_is_number, (parts[0], parts[1], parts[3]))):
            raise MalformedBlock(
                f"{_IDENTITY} {text!r} is not <inode>:<length>:<hash>:<length>:<hash>"
            )
        return cls(int(parts[0]), int(parts[1]), parts[2], int(parts[3]), parts[4])


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the lines of a message came from, as its headers say.

    `read_at` is when the bytes were read, in nanoseconds since the epoch. `identity` is None where the source cannot be
    read again (a pipe). `filtered` says that lines of the span were left out on purpose: nobody can tell by the span
    where in the source a byte of the payload stood. A message of no lines and no span is a claim: an agent's first
    word, which fences older agents of the same host.
    """

    agent: str
    file: str
    span: Span | None
    identity: Identity | None
    lines: int
    read_at: int
    compressed: bool = False
    filtered: bool = False

    @property
    def is_claim(self) -> bool:
        """Whether this is an agent's claim on its host's subject and carries no lines."""
        return self.span is None


@dataclass(frozen=True, slots=True)
class Block:
    """A run of whole lines of one file, with its origin; `payload` is on the wire as it is here.

    `continues` says that it begins inside a line, whose beginning is in the block before; it is not on the wire.
    """

    origin: Origin
    payload: bytes
    continues: bool = False


def encode_origin(origin: Origin) -> dict[str, str]:
    """Return the headers of a message."""
    headers = {_AGENT: origin.agent, _LINES: str(origin.lines), _READ_AT: str(origin.read_at)}
    if origin.span is not None:
        headers[_FILE] = _quote(origin.file)
        headers[_SPAN] = str(origin.span)
        if origin.identity is not None:
            headers[_IDENTITY] = str(origin.identity)
    if origin.filtered:
        headers[_FILTERED] = "1"
    if origin.compressed:
        headers[_ENCODING] = "zstd"
    return headers


def decode_origin(headers: Mapping[str, str] | None) -> Origin | None:
    """Read the headers of a message; None when it is none of ours (any NATS client may publish lines).

    Raises `MalformedBlock` when our headers are there and do not hold together.
    """
    if not headers:
        return None
    if _AGENT not in headers:
        if _SPAN in headers:
            raise MalformedBlock(f"{_SPAN} without {_AGENT}")
        return None
    span = Span.parse(headers[_SPAN]) if _SPAN in headers else None
    identity = Identity.parse(headers[_IDENTITY]) if _IDENTITY in headers else None
    if span is None and identity is not None:
        raise MalformedBlock(f"{_IDENTITY} without {_SPAN}")
    return Origin(
        agent=headers[_AGENT],
        file=_unquote(headers.get(_FILE, "")),
        span=span,
        identity=identity,
        lines=_number(headers, _LINES),
        read_at=_number(headers, _READ_AT),
        compressed=_is_compressed(headers),
        filtered=_FILTERED in headers,
    )


def file_of(headers: Mapping[str, str]) -> str:
    """Return the path of the source file, empty where the headers name none; the rest of them is not looked at."""
    return _unquote(headers.get(_FILE, ""))


def has_ours(head: bytes) -> bool:
    """Whether headers, as they are on the wire, may hold any that `decode_origin` or `decode_payload` goes by."""
    return b"Log-" in head or b"Content-Encoding" in head


def decode_payload(
    headers: Mapping[str, str] | None,
    payload: bytes,
    unfolder: zstandard.ZstdDecompressor | None = None,
) -> bytes:
    """Return the lines of a message, unfolded; a missing last newline is the reader's to add.

    To make an `unfolder` costs more than to unfold a small block; one thread at a time may use it again and again. Raises `MalformedBlock` for a damaged frame, one larger than `MAX_LINES_BYTES`, or an unknown encoding.
    """
    if not headers or not _is_compressed(headers):
        return payload
    try:
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= MAX_LINES_BYTES:
            raise MalformedBlock(f"zstd frame of unknown size or over {MAX_LINES_BYTES} bytes")
        unfolder = unfolder or zstandard.ZstdDecompressor()
        return unfolder.decompress(payload, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise MalformedBlock(f"damaged zstd frame: {error}") from error


def _is_compressed(headers: Mapping[str, str]) -> bool:
    encoding = headers.get(_ENCODING, "")
    if encoding not in {"", "zstd"}:
        raise MalformedBlock(f"{_ENCODING} {encoding!r} is not known; only zstd is")
    return encoding == "zstd"


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    if not _is_number(text):
        raise MalformedBlock(f"{name} {text!r} is not a number")
    return int(text)


def _is_number(text: str) -> bool:
    # as many digits as the most has, so that nobody makes us read a number of millions
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _MOST_NUMBER


def _quote(path: str) -> str:
    # a path may hold any byte but NUL; a header value is one line, and clients strip its ends
    quoted = quote_from_bytes(path.encode("utf-8", "surrogateescape"), safe=_PLAIN)
    if quoted.endswith(" "):
        quoted = f"{quoted[:-1]}%20"
    return f"%20{quoted[1:]}" if quoted.startswith(" ") else quoted


def _unquote(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")  # of a header that is not UTF-8: as it came
    return unquote_to_bytes(raw).decode("utf-8", "surrogateescape")
