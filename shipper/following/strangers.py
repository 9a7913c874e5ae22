"""Puts together what was seen of a file that is to be decided on. A value from values; judges nothing."""

from dataclasses import replace

from shipper.files.sampling import Sample
from shipper.files.sighting import Sighting
from shipper.following.chain import Stranger

__all__ = ["stranger"]


def stranger(sighting: Sighting, seen: Sample, original: str | None) -> Stranger:
    """Return a file as it was sighted and glimpsed at; `original` is the id of the file it was noted as a copy of."""
    return Stranger(
        replace(sighting, size=seen.size),
        seen.head,
        seen.tails,
        seen.ends,
        original,
        seen.ended,
        seen.is_partial,
        seen.damage,
        seen.last,
        seen.hole,
        seen.begin,
    )
