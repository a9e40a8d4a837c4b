#!/usr/bin/env python3
"""A stand-in of podman for tests: a container is a process that the client is no parent of, with its own variables.

As in podman, a monitor in a session of its own is the parent; the client passes the output on and ends with the exit
code of what it has started; a signal ends the client alone. Namespaces and file systems it has none. What it knows
lies beside it: images/ID with a digest of the file that was loaded, and containers/NAME with the pid of what runs.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

PLACE = Path(__file__).parent / "engine"
FLAGS = ("--rm", "--sig-proxy=false")
ONE_WORD = ("info", "images", "load", "pull", "rm", "run")


def option(words: list[str], name: str) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == name]


def run(words: list[str]) -> int:
    known = {path.name for path in (PLACE / "images").iterdir()}
    image = next(index for index, word in enumerate(words) if word in known)
    options = [word for word in words[:image] if word not in FLAGS]
    if unknown := [word for word in options[::2] if not word.startswith("--") or word == "--nosuch"]:
        print(f"Error: unknown flag: {unknown[0]}", file=sys.stderr)
        return 125
    env = {"PATH": os.environ["PATH"]}
    for given in option(options, "--env"):
        name, equals, value = given.partition("=")
        env[name] = value if equals else os.environ[name]
    container = PLACE / "containers" / option(options, "--name")[0]
    argv = [*option(options, "--entrypoint"), *words[image + 1 :]]
    output, to_client = os.pipe()
    code, to_code = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(output)
        monitor(argv, env, option(options, "--workdir")[0], container, to_client, to_code)
    os.close(to_client)
    os.close(to_code)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while chunk := os.read(output, 65536):
        os.write(1, chunk)
    return int(os.read(code, 16) or b"125")


def monitor(argv: list[str], env: dict[str, str], cwd: str, container: Path, output: int, code: int) -> None:
    go, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        os.read(go, 1)
        os.setsid()
        os.chdir(cwd)
        os.dup2(output, 1)
        os.close(code)
        os.execvpe(argv[0], argv, env)
    os.close(output)
    container.write_text(str(pid))
    os.close(ready)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    container.unlink(missing_ok=True)
    os.write(code, str(status if status >= 0 else 128 - status).encode())
    os._exit(0)


def main(words: list[str]) -> int:
    for name in ("images", "containers"):
        (PLACE / name).mkdir(parents=True, exist_ok=True)
    with (PLACE / "calls").open("a") as calls:
        calls.write(" ".join(words) + "\n")
    size = 1 if words[0] in ONE_WORD else 2
    command, rest = " ".join(words[:size]), words[size:]
    if command == "run":
        return run(rest)
    if command == "info":
        print("false runc" if rest else "")
    if command == "images":
        print("\n".join(path.name for path in (PLACE / "images").iterdir()))
    if command == "load":
        image = hashlib.sha256(Path(rest[-1]).read_bytes()).hexdigest()
        (PLACE / "images" / image).touch()
        print(f"Loaded image: {image}")
    if command == "pull":
        print(f"Error: {rest[0]}: no registry in reach", file=sys.stderr)
        return 125
    if command in ("image inspect", "image rm"):
        path = PLACE / "images" / rest[-1]
        if not path.exists():
            return 125
        print(path.name)
        if command == "image rm":
            path.unlink()
    container = PLACE / "containers" / rest[-1] if rest else PLACE
    if command == "rm" and container.exists():
        with suppress(ProcessLookupError):
            os.kill(int(container.read_text()), signal.SIGKILL)
        container.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
