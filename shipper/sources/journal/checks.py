"""Checks what is asked of a journal: whether it is there, and whether it has such units."""

import fnmatch
import shutil

from shipper.sources.journal.headers import JournalFolder
from shipper.sources.journal.journal import describe_unopened
from shipper.sources.journal.process import PROGRAM, Run, find_unopenable
from shipper.sources.journal.rules import UNIT_NAMES, Options, name_unit

_PATIENCE = 10.0  # seconds
_MOST_VALUES = 4 * 1024 * 1024  # bytes


def check_journal(options: Options) -> tuple[list[str], list[str]]:
    """Return why a journal cannot be read, and what may be a mistake, in sentences."""
    folder = JournalFolder(options.folder)
    files = folder.list_files()
    bad = [folder.trouble] if folder.trouble else []
    if shutil.which(PROGRAM) is None:
        bad.append(f"{PROGRAM} is not installed")
    reasons = {} if bad else find_unopenable([one.path for one in files])
    found = [describe_unopened(one, reasons[one.path]) for one in files if one.path in reasons]
    doubts = [] if bad else [*found, *find_doubts(options)]
    if found and len(found) == len(files):
        bad, doubts = found, []
    return [f"{options.path}: {text}" for text in bad], [
        f"{options.path}: {text}" for text in doubts
    ]


def find_doubts(options: Options) -> list[str]:
    """Return a sentence on each unit that is asked for, and of which there is no entry yet."""
    if not options.rules.units:
        return []
    known = {unit for field in UNIT_NAMES for unit in _list_values(field, options.folder)}
    globs = ((text, name_unit(text)) for text in options.rules.units)
    missing = [text for text, one in globs if not fnmatch.filter(known, one)]
    return [f"there is no entry of a unit {text} yet; check --unit" for text in missing]


def _list_values(field: str, folder: str) -> list[str]:
    where = [f"--directory={folder}"] if folder else []
    try:
        run = Run([PROGRAM, "--quiet", f"--field={field}", *where])
    except OSError:
        return []
    data = run.read(_MOST_VALUES, _PATIENCE) or b""
    run.kill()
    return data.decode("utf-8", "surrogateescape").splitlines()
