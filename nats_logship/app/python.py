"""The only module that starts Python processes.

They import no module of the current directory, of PYTHONPATH or of the user's site. A test keeps
`sys.executable` out of all other modules of the programs.
"""

import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(sys.executable).parent
"""The folder of the programs that were installed with this Python."""
INTERPRETER = sys.executable
"""This Python, for Spark, which starts its workers itself: set `SAFE_PATH` for them."""
SAFE_PATH = "PYTHONSAFEPATH"
"""The variable that does the same as `-P`."""


def isolated_command(script: ModuleType, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module which imports only Python's own modules."""
    assert script.__file__
    return (sys.executable, "-I", "-S", script.__file__, *arguments)
