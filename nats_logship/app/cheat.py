"""The command `cheat` of each program: the ten commands that people need, ready to be copied."""

import click


def cheat_command(text: str) -> click.Command:
    """Return a command that prints a text: a line with `#` says what the line below it does."""

    def show() -> None:
        for line in text.strip().splitlines():
            click.secho(line, fg="bright_black" if line.startswith("#") else None)

    return click.Command("cheat", callback=show, help="Show the ten commands that people need.")
