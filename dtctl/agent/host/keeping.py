"""Leaves the agent's program on the disk: as it was sent, compiled, and as the few files that others than us read.

The bootstrap runs it before there is anything to import.
"""

from __future__ import annotations

import errno
import marshal
import os
from _blake2 import blake2b
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping, Tuple

IMPORTER = "dtctl_agent/host/compiled.py"
PLAIN = ("__main__.py", "dtctl_agent/dump/site/sitecustomize.py")
"""Files that Python itself reads: in a process that starts without a session, and in trainers."""

_CODES = {
    errno.ENOSPC: ("disk_full", "the disk is full", "free some space on this host"),
    errno.EDQUOT: ("disk_full", "the disk quota is used up", "free some space on this host"),
    errno.EACCES: ("permission_denied", "permission denied", ""),
    errno.EPERM: ("permission_denied", "permission denied", ""),
    errno.EROFS: ("permission_denied", "the file system is read-only", ""),
    errno.ENOTDIR: ("not_a_directory", "not a directory", ""),
    errno.EEXIST: ("not_a_directory", "not a directory", ""),
}


def keep(
    program: str, files: Mapping[str, str], packed: bytes, code: str, fail: Callable[[str, str, str, str], None]
) -> None:
    """`files` are what is packed; `code` is the path of what they are compiled to, as each is first needed."""
    wanted = {os.path.join(program, "source"): packed, code: compiled(files, {})}
    wanted.update((os.path.join(program, name), files[name].encode()) for name in PLAIN)
    try:
        for directory in sorted({os.path.dirname(path) for path in wanted}):
            make_directory(os.path.join(directory, "__pycache__"))  # Python's own would be open to others
        for path in wanted:
            write(path, wanted[path])
    except OSError as error:
        kind, what, hint = _CODES.get(error.errno or 0, ("internal", str(error), ""))
        fail(kind, "cannot keep the agent on this host: %s" % what, str(error), hint)


def compiled(files: Mapping[str, str], codes: Mapping[str, bytes]) -> bytes:
    """The content of the file from which compiled.py imports; `codes` are those of modules that have been needed.

    Its head is Python's own number for its code, the size of the rest of the head, a digest of that, and then what
    runs first, the index of the modules, and what the plain files have to be.
    """
    index: Dict[str, Tuple[str, int, int, bytes]] = {}
    bodies: List[bytes] = []
    offset = 0
    for path in sorted(files):
        if path.startswith("dtctl_agent/"):
            name = _module(path)
            code = codes.get(name, b"")
            index[name] = (path, offset, len(code), blake2b(code, digest_size=16).digest() if code else b"")
            bodies.append(code)
            offset += len(code)
    importer = compile(files[IMPORTER], IMPORTER, "exec", dont_inherit=True)
    head = marshal.dumps((importer, index, {name: files[name].encode() for name in PLAIN}))
    size = len(head).to_bytes(4, "little")
    return b"".join([MAGIC_NUMBER, size, blake2b(head, digest_size=16).digest(), head, *bodies])


def _module(path: str) -> str:
    name = path[: -len(".py")].replace("/", ".")
    return name[: -len(".__init__")] if name.endswith(".__init__") else name


def make_directory(path: str) -> None:
    if os.path.isdir(path):
        return
    make_directory(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except OSError:
        if not os.path.isdir(path):  # else another session has just created it
            raise


def write(path: str, wanted: bytes) -> None:
    """Leaves `wanted` at `path`, also when another session does the same at the same time."""
    temporary = "%s.%d.new" % (path, os.getpid())
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(wanted)
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
