"""The first thing that runs on a host: keeps the agent's program and enters the session.

It is executed from the standard input by the loader (docs/agent.md, "Start of a conversation") and is written so that
every Python 3 can read it, to be able to say that it is too old. It is not part of the program that is kept.
"""

import errno
import json
import os
import stat
import sys

STAMP = "kept"
"""Beside the program: its files, and by what a later session sees that nobody has touched them."""
STAMP_BYTES = 1 << 20
BOOT_ID = "/proc/sys/kernel/random/boot_id"
BOOT_BYTES = 64


def say(frame: dict) -> None:  # type: ignore[type-arg]
    sys.stdout.buffer.write(json.dumps(frame).encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()


def fail(code: str, summary: str, detail: str, hint: str) -> None:
    say({"type": "error", "code": code, "summary": summary, "detail": detail, "hint": hint})
    sys.stdin.buffer.read()  # the controller may still be sending; a broken pipe would hide the frame from it
    os._exit(1)


def content(path: str, most: int):  # type: ignore[no-untyped-def]
    """What is in a regular file of at most so many bytes; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except EnvironmentError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(found.st_mode) and found.st_size <= most else None


def refuse_unsafe(root: str, program: str, files: list) -> None:  # type: ignore[type-arg]
    """Fails where another user may put something into the directories that are there already, or has made them.

    What is run and kept there would be that user's. A link is followed when it is this user's own.
    """
    try:
        mapped = os.stat(root).st_uid
    except EnvironmentError:
        mapped = os.geteuid()  # it is not there: it will be made, for this user alone
    owners = [os.geteuid()]
    below = [os.path.join(root, name) for name in ("agent", "bundles", "clusters", "runs", "work")]
    code = sorted({os.path.dirname(os.path.join(program, name)) for name in files})
    for path in [root] + below + code + [os.path.join(directory, "__pycache__") for directory in code]:
        trouble = unsafe(path, owners)
        if trouble and path == root and mapped not in owners and maps_owners(root, mapped):
            owners.append(mapped)
            trouble = unsafe(path, owners)
        if trouble:
            fail("permission_denied", *trouble)


def unsafe(path: str, owners: list) -> tuple:  # type: ignore[type-arg]
    """Why a directory must not be used: summary, detail and hint; empty when it may be, or is not there."""
    try:
        link = os.lstat(path)
        found = os.stat(path)
    except EnvironmentError:
        return ()
    writable = stat.S_ISDIR(found.st_mode) and found.st_mode & 0o022
    if not writable and link.st_uid in owners and found.st_uid in owners:
        return ()
    import shlex

    detail = "its owner is user %d and its mode %04o; this is user %d" % (
        found.st_uid,
        stat.S_IMODE(found.st_mode),
        os.geteuid(),
    )
    if writable:
        return ("others may write to %s on this host" % path, detail, "chmod go-w %s" % shlex.quote(path))
    hint = "log in as its owner, or move it away: mv %s %s" % (shlex.quote(path), shlex.quote(path + ".old"))
    return ("%s on this host belongs to another user" % path, detail, hint)


def maps_owners(directory: str, owner: int) -> bool:
    """Tells whether what we make there is `owner`'s as well: so it is where a file server has another number for us."""
    path = os.path.join(directory, ".owner-%d" % os.getpid())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            return os.fstat(descriptor).st_uid == owner
        finally:
            os.close(descriptor)
            os.unlink(path)
    except EnvironmentError:
        return False


def make_directory(path: str) -> None:
    if os.path.isdir(path):
        return
    make_directory(os.path.dirname(path))
    try:
        os.mkdir(path, 0o700)
    except EnvironmentError:
        if not os.path.isdir(path):  # else another session has made it just now
            raise


def keep(path: str, wanted: bytes) -> None:
    """Leaves `wanted` at `path`, also when another session does the same at the same time."""
    if content(path, len(wanted)) == wanted:
        return
    make_directory(os.path.dirname(path))
    temporary = "%s.%d.new" % (path, os.getpid())
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(wanted)
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def keep_or_fail(program: str, files: dict) -> None:  # type: ignore[type-arg]
    """Leaves the files in the directory `program`, where Python also keeps them compiled: a start costs a third."""
    codes = {
        errno.ENOSPC: ("disk_full", "the disk is full", "free some space on this host"),
        errno.EDQUOT: ("disk_full", "the disk quota is used up", "free some space on this host"),
        errno.EACCES: ("permission_denied", "permission denied", ""),
        errno.EPERM: ("permission_denied", "permission denied", ""),
        errno.EROFS: ("permission_denied", "the file system is read-only", ""),
        errno.ENOTDIR: ("not_a_directory", "not a directory", ""),
        errno.EEXIST: ("not_a_directory", "not a directory", ""),
    }
    try:
        if os.path.isdir(program):
            os.utime(program, None)  # in use again: `gc` must not take it for abandoned
        for name in sorted(files):
            keep(os.path.join(program, name), files[name].encode("utf-8"))
        for directory in sorted({os.path.dirname(os.path.join(program, name)) for name in files}):
            make_directory(os.path.join(directory, "__pycache__"))  # Python's own would be open to others
        marks = {name: mark(os.path.join(program, name)) for name in files}
        keep(os.path.join(program, STAMP), json.dumps(marks, sort_keys=True).encode("utf-8"))
        keep(boot_path(program), boot_id())
    except EnvironmentError:
        error = sys.exc_info()[1]
        assert isinstance(error, EnvironmentError)
        code, what, hint = codes.get(error.errno or 0, ("internal", str(error), ""))
        fail(code, "cannot keep the agent on this host: %s" % what, str(error), hint)


def mark(path: str) -> list:  # type: ignore[type-arg]
    found = os.lstat(path)
    return [found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def boot_id() -> bytes:
    """Another one after each restart of the machine; empty where there is none."""
    try:
        with open(BOOT_ID, "rb") as file:
            return file.read(BOOT_BYTES)
    except EnvironmentError:
        return b""


def boot_path(program: str) -> str:
    """Says in which life of this machine the files were compared: a loss of power may leave them torn, times and all.

    One file a machine, because several may share the directory.
    """
    return os.path.join(program, "boot-%s" % os.uname()[1].replace("/", "-"))


def kept(program: str) -> list:  # type: ignore[type-arg]
    """The names of the program's files; none if they are not what was kept here. Reads the stamp alone."""
    booted = boot_id()
    if not booted or content(boot_path(program), BOOT_BYTES) != booted:
        return []
    try:
        os.utime(program, None)  # in use again: `gc` must not take it for abandoned
        marks = json.loads((content(os.path.join(program, STAMP), STAMP_BYTES) or b"{}").decode("utf-8"))
        return list(marks) if all(mark(os.path.join(program, name)) == marks[name] for name in marks) else []
    except (EnvironmentError, ValueError, TypeError):
        return []


def size_of_program(reader) -> bytes:  # type: ignore[no-untyped-def]
    """What the controller had asked for before it heard that there is none is passed over: it asks again."""
    line = reader.readline()
    while line.startswith(b"{"):
        reader.read(json.loads(line.decode("utf-8")).get("bytes", 0))
        line = reader.readline()
    return line or b"-1"


def received(reader, size: int) -> dict:  # type: ignore[no-untyped-def,type-arg]
    """The program's files, as they are sent."""
    import zlib

    packed = reader.read(max(size, 0))
    if len(packed) != size:
        os._exit(0)  # the controller is gone
    return dict(json.loads(zlib.decompress(packed).decode("utf-8")))


def enter() -> None:
    reader = sys.stdin.buffer
    sys.stdout.buffer.write(b"\x1e")
    if sys.version_info < (3, 8):
        version = ".".join([str(number) for number in sys.version_info[:3]])
        summary = "python3 on this host is %s, and 3.8 is the oldest that works" % version
        fail("python_too_old", summary, sys.executable, "install a newer python3 and have it first in PATH")
    size, digest = reader.readline().split()
    root = os.path.abspath(os.environ.get("DTCTL_ROOT") or os.path.join(os.path.expanduser("~"), ".dtctl"))
    program = os.path.join(root, "agent", digest.decode("ascii"))
    refuse_unsafe(root, program, ["__main__.py"])
    names = [] if int(size) else kept(program)
    if names:
        refuse_unsafe(root, program, names)
    else:
        if not int(size):
            say({"type": "lacking"})
            size = size_of_program(reader)
        files = received(reader, int(size))
        refuse_unsafe(root, program, list(files))
        keep_or_fail(program, files)
    sys.path.insert(0, program)
    from importlib import import_module

    import_module("dtctl_agent.host.compiled").mend_damaged()
    import_module("dtctl_agent.requests.session").main(root)


if __name__ == "__main__":
    enter()
