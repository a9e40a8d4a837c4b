"""SSH keys of every kind, each made once for all processes of a test run, and an ssh-agent to hold them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.hosts.once import once
from tests.waiting import eventually

KINDS = ("ed25519", "ecdsa", "rsa")
PASSPHRASE = "correct horse"


@cache
def make_key(name: str, kind: str = "ed25519", passphrase: str = "", form: str = "") -> Path:
    """The private key's path; its public half lies beside it as NAME.pub. `form` PEM makes the old format."""
    rounds = ("-a", "1") if kind == "ed25519" else ()
    size = ("-b", "2048") if kind == "rsa" else ()
    pem = ("-m", form) if form else ()
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", f"{name}@dtctl-tests", *rounds, *size, *pem]
    return once(name, lambda path: subprocess.run([*command, "-f", str(path)], check=True, stdin=subprocess.DEVNULL))


def public_text(key: Path) -> str:
    return key.with_name(key.name + ".pub").read_text()


def fingerprint(key: Path) -> str:
    """SHA256:... as ssh-keygen prints it."""
    answer = subprocess.run(["ssh-keygen", "-lf", str(key) + ".pub"], check=True, capture_output=True, text=True)
    return answer.stdout.split()[1]


@contextmanager
def ssh_agent(*keys: Path) -> Iterator[Path]:
    """A running agent that holds `keys` (without passphrase); gives the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="dtctl-agent-") as directory:
        socket = Path(directory) / "socket"
        agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL)
        try:
            eventually(lambda: _answers(socket), what="ssh-agent")
            for key in keys:
                add_to_agent(socket, key)
            yield socket
        finally:
            agent.terminate()
            agent.wait()


def add_to_agent(socket: Path, key: Path) -> None:
    subprocess.run(["ssh-add", "-q", str(key)], check=True, env=_with(socket), stdin=subprocess.DEVNULL)


def _answers(socket: Path) -> bool:
    """The socket is there before anybody listens on it; ssh-add(1) ends with 2 where no agent can be reached."""
    asked = subprocess.run(["ssh-add", "-l"], check=False, env=_with(socket), capture_output=True)
    return asked.returncode != 2


def _with(socket: Path) -> dict[str, str]:
    return {**os.environ, "SSH_AUTH_SOCK": str(socket)}
