"""One message of the stream: whole lines of one file as bytes, and the headers that say where they came from.

Encodes and decodes; knows nothing of files, connections or time. `decode(encode(b)) == b`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from urllib.parse import quote_from_bytes, unquote_to_bytes

import zstandard

__all__ = [
    "MAX_ID_BYTES",
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
    "predecessor_of",
]

MAX_LINES_BYTES = 8 * 1024 * 1024
"""The most that a payload may unfold to, in bytes: a bound on what a damaged or hostile message can cost.

As much as a message without compression can bring, and twice what a shipper ever sends.
"""

MAX_ID_BYTES = 128
"""The longest file id, or agent id: a receiver remembers each for weeks."""
_MOST_PATH = 4096  # bytes; PATH_MAX of Linux
_MOST_HASH = 128  # hex digits; those of SHA-512
_MOST_SHOWN = 100  # characters of a wrong header in the reason why it is wrong

_FILE, _SPAN, _IDENTITY = "Log-File", "Log-Span", "Log-Identity"
_LINES, _AGENT, _READ_AT = "Log-Lines", "Log-Agent", "Log-Read-At"
_FILTERED = "Log-Filtered"
_ENCODING = "Content-Encoding"
_PREDECESSOR, _BATCH_SEQUENCE = "Nats-Expected-Last-Subject-Sequence", "Nats-Batch-Sequence"
_SOURCE = "Nats-Stream-Source"
_LARGEST_OFFSET = 2**63  # of any file system
_MOST_NUMBER = 2**64 - 1  # some file systems have inodes of all 64 bits
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class MalformedBlock(ValueError):
    """A message that carries our headers and breaks their rules, or whose payload cannot be unfolded."""


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open byte range `[start, end)` of a source file; `file` is the id that stays with it through renames.

    Raises `MalformedBlock` for an id of more than `MAX_ID_BYTES`.
    """

    file: str
    start: int
    end: int

    def __post_init__(self) -> None:
        """Refuse an id that is too long, whoever makes it."""
        _refuse_longer(self.file, MAX_ID_BYTES, f"the file id in {_SPAN}")

    def __str__(self) -> str:
        return f"{self.file}:{self.start}-{self.end}"

    @classmethod
    def parse(cls, text: str) -> "Span":
        """Read `<file id>:<start>-<end>`; raise `MalformedBlock` when it is anything else."""
        file, _, numbers = text.rpartition(":")
        start, _, end = numbers.partition("-")
        is_range = (
            _is_number(start) and _is_number(end) and int(start) <= int(end) < _LARGEST_OFFSET
        )
        if not (file and is_range):
            raise MalformedBlock(f"{_SPAN} {_shown(text)} is not <file id>:<start>-<end>")
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
                f"{_IDENTITY} {_shown(text)} is not <inode>:<length>:<hash>:<length>:<hash>"
            )
        for part in (parts[2], parts[4]):
            _refuse_longer(part, _MOST_HASH, f"a hash in {_IDENTITY}")
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
    _refuse_longer(headers[_AGENT], MAX_ID_BYTES, _AGENT)
    return Origin(
        agent=headers[_AGENT],
        file=file_of(headers),
        span=span,
        identity=identity,
        lines=_number(headers, _LINES),
        read_at=_number(headers, _READ_AT),
        compressed=_is_compressed(headers),
        filtered=_FILTERED in headers,
    )


def predecessor_of(headers: Mapping[str, str] | None, sequence: int) -> int | None:
    """Return the sequence of the message before on the same subject, as the server checked it for a shipper.

    0 where the subject held none; None where the headers do not say it. A shipper has the server compare it
    (`Nats-Expected-Last-Subject-Sequence`, which is stored with the message) for the first message of a batch; the
    others of that batch follow on each other. Sequences of another site's stream say nothing about this one.
    """
    if not headers or _AGENT not in headers or _SOURCE in headers:
        return None
    if headers.get(_BATCH_SEQUENCE, "1") != "1":
        return sequence - 1
    expected = headers.get(_PREDECESSOR, "")
    return int(expected) if _is_number(expected) else None


def file_of(headers: Mapping[str, str]) -> str:
    """Return the path of the source file, empty where the headers name none; the rest of them is not looked at.

    What is longer than any path of a file system is cut, with a digest of the whole behind.
    """
    path = _unquote(headers.get(_FILE, ""))
    raw = path.encode("utf-8", "surrogateescape")
    if len(raw) <= _MOST_PATH:
        return path
    digest = blake2b(raw, digest_size=16).hexdigest()
    return f"{raw[: _MOST_PATH - 40].decode('utf-8', 'surrogateescape')}…{digest}"


def has_ours(head: bytes) -> bool:
    """Whether headers, as they are on the wire, may hold any that `decode_origin` or `decode_payload` goes by."""
    return b"Log-" in head or b"Content-Encoding" in head


def decode_payload(
    headers: Mapping[str, str] | None,
    payload: bytes,
    unfolder: zstandard.ZstdDecompressor | None = None,
) -> bytes:
    """Return the lines of a message, unfolded; a missing last newline is the reader's to add.

    To make an `unfolder` costs more than to unfold a small block; one thread at a time may use it again and again. Raises
    `MalformedBlock` for a damaged frame, one that says of itself to be larger than `MAX_LINES_BYTES`, which is not unfolded
    at all, or an unknown encoding.
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
        raise MalformedBlock(f"{_ENCODING} {_shown(encoding)} is not known; only zstd is")
    return encoding == "zstd"


def _number(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name, "")
    if not _is_number(text):
        raise MalformedBlock(f"{name} {_shown(text)} is not a number")
    return int(text)


def _refuse_longer(text: str, most: int, what: str) -> None:
    size = len(text.encode("utf-8", "surrogateescape"))
    if size > most:
        raise MalformedBlock(f"{what} has {size} bytes, more than {most}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")


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
