"""Dropbear: an SSH server that shares no code with OpenSSH, as on small machines."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.hosts import keys
from tests.hosts.ports import free_port
from tests.hosts.sandbox import Sandbox, make_user
from tests.hosts.scratch import make_directory
from tests.hosts.sshd import wait_for_banner

DROPBEAR = shutil.which("dropbear", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


@contextmanager
def dropbear() -> Iterator[tuple[int, Path]]:
    """As root: a server on 127.0.0.1 for the user `train`; gives its port and a known_hosts file."""
    assert DROPBEAR is not None
    directory = make_directory("dropbear")
    directory.chmod(0o711)
    user = make_user("train", 0, directory / "home")
    (user.home / ".ssh").mkdir(mode=0o755)
    (user.home / ".ssh" / "authorized_keys").write_text(keys.public_text(keys.make_key("login")))
    user.home.chmod(0o755)
    port, host_key = free_port(), directory / "host_key"
    made = subprocess.run(
        ["dropbearkey", "-t", "ed25519", "-f", str(host_key)], check=True, capture_output=True, text=True
    )
    public = next(line for line in made.stdout.splitlines() if line.startswith("ssh-ed25519"))
    (directory / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(public.split()[:2])}\n")
    box = Sandbox(directory, [user])
    try:
        box.start([DROPBEAR, "-F", "-r", str(host_key), "-p", f"127.0.0.1:{port}", "-s", "-P", str(directory / "pid")])
        wait_for_banner("127.0.0.1", port, box.process)
        yield port, directory / "known_hosts"
    finally:
        box.kill()
        shutil.rmtree(directory)
