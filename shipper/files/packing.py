"""The forms that rotation compresses files to, as their names tell. Knows names only."""

from enum import Enum

__all__ = ["Packing", "packing_of", "unpacked"]


class Packing(Enum):
    """A form that can be read as it is unpacked; the value is what its names end in."""

    GZIP = ".gz"
    ZSTD = ".zst"
    XZ = ".xz"
    BZIP2 = ".bz2"


_ENDINGS = {packing.value: packing for packing in Packing}


def packing_of(name: str) -> Packing | None:
    """Return the form that the name tells; None for any other file."""
    return _ENDINGS.get(name[name.rfind(".") :])


def unpacked(name: str) -> str:
    """Return the name before compression; the name itself where it tells of none."""
    packing = packing_of(name)
    return name if packing is None else name.removesuffix(packing.value)
