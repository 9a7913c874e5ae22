"""What a replay did, for people and for programs. Values and words only."""

import json
from dataclasses import asdict, dataclass, replace

__all__ = ["Summary", "as_json", "as_text"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a replay did: `[first, until)` are sequences, `size` is in bytes.

    `refused` counts messages that a receiver sets aside, `findings` the gaps and repeats of source files that were met;
    `gone` says what the stream no longer held.
    """

    first: int
    until: int
    lines: int = 0
    size: int = 0
    refused: int = 0
    findings: int = 0
    gone: str = ""

    def plus(self, lines: int, size: int, refused: int, findings: int) -> "Summary":
        """Return the summary with more done."""
        return replace(
            self,
            lines=self.lines + lines,
            size=self.size + size,
            refused=self.refused + refused,
            findings=self.findings + findings,
        )


def as_json(summary: Summary) -> str:
    """Write a summary for programs."""
    return json.dumps(asdict(summary))


def as_text(summary: Summary) -> str:
    """Write a summary for people."""
    told = f"replayed {summary.lines:,} lines of sequences {summary.first} to {summary.until - 1}"
    if summary.refused:
        told += f"; {summary.refused} messages hold none and lie in .quarantine"
    if summary.findings:
        told += f"; {summary.findings} gaps or repeats of source files met"
    return told
