"""The first program that runs on a host: finds the agent's program there, or requests it, and runs it.

A session reads this text from its standard input (docs/agent.md, "Start of a conversation"). The program keeps it as
`__main__.py` for the processes that start without a session. Every Python 3 can read it, to be able to say that it is
too old.
"""

import gc
import os
import stat
import sys

SOURCE = "source"
"""The program as it was sent. The SHA-256 of its unpacked content is the name of the directory."""
MOST_BYTES = 1 << 26
HEAD_BYTES = 1 << 17
COLLECTED_AFTER = 50000
"""The number of new objects before a collection: a session for one request rarely creates as many, and most stay."""


def say(**frame: object) -> None:
    import json

    sys.stdout.buffer.write(json.dumps(frame).encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()


def fail(code: str, summary: str, detail: str, hint: str) -> None:
    say(type="error", code=code, summary=summary, detail=detail, hint=hint)
    sys.stdin.buffer.read()  # the controller may still be sending; a broken pipe would hide the frame from it
    os._exit(1)


def content(path: str, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes that belongs to its directory's owner and that no other
    user may write; else none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except EnvironmentError:
        return b""
    try:
        found = os.fstat(descriptor)
        owned = found.st_uid == os.stat(os.path.dirname(path)).st_uid
        safe = owned and stat.S_ISREG(found.st_mode) and not found.st_mode & 0o022
        return os.pread(descriptor, min(most, found.st_size), 0) if safe else b""
    finally:
        os.close(descriptor)


def refuse_unsafe(root: str, program: str) -> None:
    """Fails if another user may write to the existing directories, or has created them.

    What is run and kept there would be that user's. A link is followed when it is this user's own.
    """
    owners = [os.geteuid()]
    paths = [root]
    paths.extend(os.path.join(root, name) for name in ("agent", "bundles", "clusters", "runs", "sessions", "work"))
    paths.append(program)
    paths.extend(os.path.join(program, name) for name in ("__pycache__", "dtctl_agent", "dtctl_agent/dump/site"))
    for path in paths:
        trouble = unsafe(path, owners)
        if trouble and path == root:
            mapped = os.stat(root).st_uid
            if mapped not in owners and maps_owners(root, mapped):
                owners.append(mapped)
                trouble = unsafe(path, owners)
        if trouble:
            fail("permission_denied", *trouble)


def unsafe(path: str, owners: list) -> tuple:  # type: ignore[type-arg]
    """Why a directory must not be used: summary, detail and hint; empty if it may be used, or does not exist."""
    try:
        link = found = os.lstat(path)
        if stat.S_ISLNK(link.st_mode):
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
    """Whether a new file there belongs to `owner`, too, as on a file server that has another number for this user."""
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


def compiled_path(program: str) -> str:
    """The path of its modules, compiled by this version of Python."""
    return os.path.join(program, "%s.code" % sys.implementation.cache_tag)


def imports(program: str) -> bool:
    """Lets this process import the program, if all of it is there. Only the head of its file is read."""
    import marshal
    from _blake2 import blake2b
    from _frozen_importlib_external import MAGIC_NUMBER

    path = compiled_path(program)
    head = content(path, HEAD_BYTES)
    end = 24 + int.from_bytes(head[4:8], "little")
    if head[:4] != MAGIC_NUMBER or blake2b(head[24:end], digest_size=16).digest() != head[8:24]:
        return False
    importer, index, plain = marshal.loads(head[24:end])
    if any(content(os.path.join(program, name), MOST_BYTES) != plain[name] for name in plain):
        return False
    scope = {"__name__": "importer"}
    exec(importer, scope)
    scope["install"](path, end, index, lambda: sources(program))  # type: ignore[operator]
    return True


def sources(program: str, packed: bytes = b"") -> dict:  # type: ignore[type-arg]
    """Path -> text of its files; empty if they do not match the program's name."""
    import json
    import zlib
    from hashlib import sha256

    try:
        packed = zlib.decompress(packed or content(os.path.join(program, SOURCE), MOST_BYTES))
    except zlib.error:
        return {}
    if sha256(packed).hexdigest() != os.path.basename(program):
        return {}
    index, _, texts = packed.partition(b"\n")
    files, offset = {}, 0
    for path, size in json.loads(index.decode("ascii")):
        files[path] = texts[offset : offset + size].decode("utf-8")
        offset += size
    return files


def received(reader, size: int) -> bytes:  # type: ignore[no-untyped-def]
    """The packed program. Requests that the controller sent before it knew that there is none are skipped."""
    if not size:
        say(type="lacking")
        line = reader.readline()
        while line.startswith(b"{"):
            import json

            reader.read(json.loads(line.decode("utf-8")).get("bytes", 0))
            line = reader.readline()
        size = int(line or b"-1")
    packed = reader.read(max(size, 0))
    if len(packed) != size:
        os._exit(0)  # the controller has disconnected
    return bytes(packed)


def keep(program: str, packed: bytes, fail) -> None:  # type: ignore[no-untyped-def]
    """Leaves the program on the disk, compiled for this Python."""
    files = sources(program, packed)
    if not files:
        fail("internal", "what arrived is not the agent's program", "", "")
    scope = {"__name__": "keeper"}
    exec(compile(files["dtctl_agent/host/keeping.py"], "dtctl_agent/host/keeping.py", "exec"), scope)
    scope["keep"](program, files, packed, compiled_path(program), fail)  # type: ignore[operator]
    if not imports(program):
        fail("internal", "the agent's program was changed while it was kept", "", "")


def enter_session() -> None:
    gc.set_threshold(COLLECTED_AFTER)
    reader = sys.stdin.buffer
    sys.stdout.buffer.write(b"\x1e")
    if sys.version_info < (3, 8):
        version = ".".join([str(number) for number in sys.version_info[:3]])
        summary = "python3 on this host is %s, and 3.8 is the oldest that works" % version
        fail("python_too_old", summary, sys.executable, "install a newer python3 and have it first in PATH")
    size, digest, *stay = reader.readline().split()
    root = os.path.abspath(os.environ.get("DTCTL_ROOT") or os.path.join(os.path.expanduser("~"), ".dtctl"))
    program = os.path.join(root, "agent", digest.decode("ascii"))
    refuse_unsafe(root, program)
    if int(size) or not imports(program):
        packed = b"" if int(size) or not sources(program) else content(os.path.join(program, SOURCE), MOST_BYTES)
        keep(program, packed or received(reader, int(size)), fail)
    from contextlib import suppress
    from importlib import import_module

    with suppress(EnvironmentError):
        os.utime(program, None)  # it is in use again: `gc` must not remove it
    import_module("dtctl_agent.requests.session").main(root, [word.decode("ascii") for word in stay])


def enter_command_line() -> None:
    program = os.path.realpath(sys.argv[0])
    if not imports(program):
        keep(
            program, content(os.path.join(program, SOURCE), MOST_BYTES), lambda *error: sys.exit(": ".join(error[1:3]))
        )
    from importlib import import_module

    import_module("dtctl_agent.main").main_command_line()


if __name__ == "__main__":
    enter_session() if sys.argv[0] == "-c" else enter_command_line()
