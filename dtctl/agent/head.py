"""The first lines that run on a host: they save compiling the bootstrap, which follows, where the program is kept.

Whatever is unusual there is left to the bootstrap, which says what it is. Every Python 3 can read them.
"""

import marshal
import os
import sys

size, digest = sys.stdin.buffer.readline().split()
text = sys.stdin.buffer.read(int(size))
code = None
try:
    from _blake2 import blake2b
    from _frozen_importlib_external import MAGIC_NUMBER

    path = os.path.abspath(os.environ.get("DTCTL_ROOT") or os.path.join(os.path.expanduser("~"), ".dtctl"))
    for name in ("", "agent", digest.decode("ascii"), "%s.code" % sys.implementation.cache_tag):
        path = os.path.join(path, name) if name else path
        found = os.lstat(path)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:  # a link has mode 0777
            raise EnvironmentError(path)
    with open(path, "rb") as file:
        head = file.read(1 << 17)
    end = 24 + int.from_bytes(head[4:8], "little")
    if head[:4] == MAGIC_NUMBER and blake2b(head[24:end], digest_size=16).digest() == head[8:24]:
        code = marshal.loads(head[24:end])[3]
except Exception:
    pass
exec(code or compile(text, "dtctl", "exec"))
