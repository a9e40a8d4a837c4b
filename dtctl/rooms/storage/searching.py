"""The checkpoints at a storage URL by the names of their objects, as the reader of directories finds them on a host."""

from __future__ import annotations

import re

from dtctl.agent.checkpoints import deepspeed, formats, reading, trees
from dtctl.agent.checkpoints.tensor_bundle import number_in
from dtctl.dataclass import dataclass
from dtctl.rooms.storage import MOST_DIRECTORIES, MOST_OBJECTS, Object, Place
from dtctl.rooms.storage.arriving import arriving_name

MOST_DEPTH = 6
"""How deep a checkpoint that is a directory may be."""

_MARK_BYTES = 256


@dataclass(frozen=True)
class Group:
    """The objects of one checkpoint. `beside`: those that its reader needs besides them."""

    prefix: str
    row: formats.Format
    objects: list[Object]
    beside: tuple[Object, ...] = ()

    @property
    def time(self) -> float:
        """The time of its last change: that of the object that is written last, where there is one."""
        if isinstance(self.row, formats.DirectoryFormat):
            times = {one.name: one.time for one in self.objects}
            for mark in self.row.marks:
                if f"{self.prefix}/{mark}" in times:
                    return times[f"{self.prefix}/{mark}"]
        return max((one.time for one in self.objects), default=0.0)


class _Listed(trees.Names):
    """What a directory at the URL contains."""

    def __init__(self, place: Place, below: str, objects: list[Object], directories: list[str]) -> None:
        super().__init__(below)
        self._place = place
        self._below = below
        self._sizes = {one.name.rpartition("/")[2]: one.size for one in objects}
        self._names = [*self._sizes, *directories]
        self._directories = directories

    def has(self, name: str) -> bool:
        first, _, rest = name.partition("/")
        if not rest:
            return name in self._sizes or name in self._directories
        if first not in self._directories:
            return False
        return any(one.name == f"{self._below}{name}" for one in self._place.inside(f"{self._below}{first}/")[0])

    def begins_with(self, name: str, mark: bytes) -> bool:
        size = self._sizes.get(name, 0)
        return size > 0 and mark in self._place.piece(f"{self._below}{name}", 0, min(size, _MARK_BYTES))


class Search:
    """`cut`: whether there may be more than those found. `arriving`: those of which a push has not ended, which are no
    checkpoints yet.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self.count = 0
        self.cut = False
        self.arriving: set[str] = set()
        self._groups: dict[str, Group] = {}
        self._pointers: dict[str, Object] = {}
        self._directories = 0

    def run(self) -> list[Group]:
        """Lists the directories in which checkpoints are searched for, the ones with the largest numbers first."""
        level = [""]
        while level:
            deeper: list[str] = []
            for below in sorted(level, key=lambda path: (number_in(path.rstrip("/")) or 0, path), reverse=True):
                listed = self._listed(below)
                if listed is not None:
                    deeper += self._take(below, *listed)
            level = deeper
        found = [one for one in self._groups.values() if one.prefix not in self.arriving]
        return sorted(found, key=lambda one: (one.time, number_in(one.prefix) or 0, one.prefix), reverse=True)

    def whole(self, group: Group) -> Group:
        """Returns the group with all its objects, where the checkpoint is a directory."""
        if not group.row.is_directory:
            return group
        found, left = list[Object](), [(f"{group.prefix}/", 0)]
        while left:
            below, depth = left.pop(0)
            listed = self._listed(below)
            if listed is not None:
                found += listed[0]
                left += [(f"{below}{name}/", depth + 1) for name in listed[1] if depth < MOST_DEPTH]
        return Group(group.prefix, group.row, found, group.beside)

    def _listed(self, below: str) -> tuple[list[Object], list[str]] | None:
        if self._directories >= MOST_DIRECTORIES or self.count >= MOST_OBJECTS:
            self.cut = True
            return None
        self._directories += 1
        objects, directories = self._place.inside(below)
        room = MOST_OBJECTS - self.count
        self.cut = self.cut or len(objects) > room
        self.count += min(len(objects), room)
        return objects[:room], directories

    def _take(self, below: str, objects: list[Object], directories: list[str]) -> list[str]:
        """Adds the checkpoints of one directory, or it itself as one; returns the directories in it to be listed."""
        path = below.rstrip("/")
        if path and self._is_checkpoint(path, _Listed(self._place, below, objects, directories), objects):
            return []
        searched = formats.is_searched(path)
        if searched:
            for one in objects:
                self._add(one)
        passing = (name for name in directories if name in formats.ASIDES or re.match(formats.PASSING, name))
        staying = set(directories) - set(passing)
        return [f"{below}{name}/" for name in sorted(staying) if searched or formats.may_lead(below + name)]

    def _is_checkpoint(self, path: str, names: trees.Names, objects: list[Object]) -> bool:
        row = formats.of_names(path.rpartition("/")[2], names)
        if row is None:
            return False
        if formats.is_searched(path.rpartition("/")[0]):
            self._groups[path] = Group(path, row, objects, self._pointer(path, row))
        return True

    def _pointer(self, path: str, row: formats.Format) -> tuple[Object, ...]:
        """The object that names the checkpoint to restore, where that says whether the save has ended."""
        name = f"{path.rpartition('/')[0]}/{row.pointer}".lstrip("/")
        return (self._pointers[name],) if row.pointer == deepspeed.LATEST and name in self._pointers else ()

    def _add(self, one: Object) -> None:
        above, _, name = one.name.rpartition("/")
        if (arrives := arriving_name(name)) is not None:
            self.arriving.add(f"{above}/{arrives}".lstrip("/"))
        if name == deepspeed.LATEST:
            self._pointers[one.name] = one
        row = formats.of_file(name)
        prefix = reading.prefix_of(name)
        if prefix is None:
            return
        path = f"{above}/{prefix}".lstrip("/")
        group = self._groups.setdefault(path, Group(path, row or formats.TENSORFLOW, []))
        group.objects.append(one)
