"""The one place that starts Pythons.

No module of the current directory, of PYTHONPATH or of the user's site runs in them. A test keeps
`sys.executable` out of every other module of the programs.
"""

import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(sys.executable).parent
"""Where the programs are that were installed with this Python: beside the link, if it is one."""
INTERPRETER = sys.executable
"""This Python, for Spark, which starts its workers itself; give them `SAFE_PATH`."""
SAFE_PATH = "PYTHONSAFEPATH"
"""The variable that keeps the current directory out of a Python as `-P` does."""


def isolated_command(script: ModuleType, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module by its path; it imports only Python's own modules."""
    assert script.__file__
    return (sys.executable, "-I", "-S", script.__file__, *arguments)
