"""What a failing run leaves, so that one can see why: the disks of its world vanish with its namespaces, and so do processes.

folder/processes.txt    what ran when it failed, with states and where the kernel has them waiting
folder/kept             the programs' states, received files, what was written, log files, stores; `logbroker run
                        --store-dir` on one of them, and `logbroker get`, show each message

Never fails itself: what cannot be had is left out, and the rest is kept.
"""

import subprocess

from tests.chaos.world import World

_PARTS = ("central/state", "central/out", "hosts/*/logs", "brokers/*/store", "written")


def look_around(world: World) -> None:
    """Tell what runs now; to be called before anything is ended."""
    with (world.folder / "processes.txt").open("wb") as file:
        words = ("ps", "-eLo", "pid,ppid,tid,stat,wchan:24,rss,args")
        subprocess.run(words, stdout=file, stderr=file, timeout=30, check=False)


def keep_disks(world: World) -> None:
    """Copy what is on the disks that vanish, and what was written; what cannot be read is left out."""
    (world.folder / "kept").mkdir()
    for part in _PARTS:
        for top in world.folder.glob(part):
            words = ("cp", "-a", "--parents", "--", top.relative_to(world.folder), "kept")
            subprocess.run(words, cwd=world.folder, check=False, capture_output=True)
