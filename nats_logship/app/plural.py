"""Numbers with what they count, as a person writes them; needs no other module."""

_OF_ONE = {"are": "is", "have": "has", "were": "was"}


def counted(count: int, noun: str, verb: str = "", form: str = "") -> str:
    """Return a number with what it counts, and what that does: `1 host`, `1 message waits`.

    `noun` is that of one, `verb` that of several. `form` is how `format` is to write the number.
    """
    done = f" {verb}" if verb else ""
    if count == 1:
        done = f" {_OF_ONE.get(verb, f'{verb}s')}" if verb else ""
    return f"{count:{form}} {noun}{'' if count == 1 else 's'}{done}"
