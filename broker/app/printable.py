"""Text on one line, whatever stands in it: paths and answers of servers may hold control characters, and are shown."""

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Return the text with everything that is not to be printed as an escape: a newline as `\n`, ESC as `\x1b`."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
