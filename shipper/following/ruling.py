"""Which rules a file falls under that kept no inode that we know. Decides only."""

from shipper.following.chain import Chain, Ruling, Stranger, Verdict, rule_rotated
from shipper.following.compressed import rule_compressed

__all__ = ["rule"]


def rule(stranger: Stranger, chain: Chain) -> Ruling:
    """Decide on a stranger by what is known of its family."""
    if stranger.sighting.is_live:
        return Ruling(Verdict.BEGIN)
    if stranger.sighting.packed is not None:
        return rule_compressed(stranger, chain)
    return rule_rotated(stranger, chain)
