"""Decides which files must be glimpsed at before it can be said what they are, and what is to be compared there."""

from collections.abc import Callable, Collection, Container, Mapping

from shipper.files.families import family_of
from shipper.files.sampling import Ask
from shipper.files.sighting import FileKey
from shipper.files.tailer import Tailer
from shipper.following.index import Index
from shipper.following.outlook import Outlook

__all__ = ["asks"]


def asks(
    shown: Outlook,
    tailers: Mapping[FileKey, Tailer],
    passed_over: Container[FileKey],
    index: Callable[[], Index],
    lives: Collection[str],
    from_end: bool,
) -> list[Ask]:
    """Return what is to be glimpsed at: strangers but those `passed_over`, doubtful files, and what is to tell them apart.

    `from_end` says that files never seen begin at their end in this look. A quiet look asks for nothing, and then `index` is not called.
    `lives` tell which family a followed file came from, where a hard link shows it in another one.
    """
    there = [tailer for key, tailer in tailers.items() if key in shown.files]
    fresh = [s for k, s in shown.files.items() if k not in tailers and k not in passed_over]
    fresh += [tailer.sighting for tailer in there if tailer.suspect]
    families = {sighting.family for sighting in fresh}
    # a stranger may be the copy of any file of its family that was truncated
    others = [t.sighting for t in there if t.is_strange or _may_be_original(t, families, lives)]
    wanted = dict.fromkeys([*fresh, *others])
    if not wanted:
        return []
    sizes: dict[str, set[int]] = {}
    for sighting in fresh:
        if not sighting.is_live and sighting.packed is None:
            sizes.setdefault(sighting.family, set()).add(sighting.size)
    near = index().cursors_near
    return [Ask(s, near(s), tuple(sizes.get(s.family, ())), from_end) for s in wanted]


def _may_be_original(tailer: Tailer, families: Container[str], lives: Collection[str]) -> bool:
    # a compressed file is not truncated, and to unpack it is dear
    if tailer.sighting.packed is not None:
        return False
    return tailer.sighting.family in families or family_of(tailer.label, lives) in families
