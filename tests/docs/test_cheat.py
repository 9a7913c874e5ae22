"""`cheat` of each program prints ten commands, all of which the program takes."""

import pytest

from tests.docs.commands import PROGRAMS, commands, untrue_commands
from tests.support import forks


@pytest.mark.parametrize("program", PROGRAMS)
def test_cheat_prints_ten_commands_that_the_program_takes(program: str) -> None:
    shown = forks.run(program, "cheat")

    lines = shown.stdout.splitlines()
    assert (shown.returncode, len(lines)) == (0, 20)
    assert all(line.startswith("# ") for line in lines[::2])
    assert [program in line for line in lines[1::2]] == [True] * 10
    named = commands(shown.stdout.replace("| log", "\nlog"))
    assert (len(named), {one for one, _ in named}) == (10, {program})
    assert untrue_commands(shown.stdout.replace("| log", "\nlog")) == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_cheat_names_itself_in_the_help(program: str) -> None:
    assert "cheat" in forks.run(program, "--help").stdout
