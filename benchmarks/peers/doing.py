"""The contenders that run a command on every host, each at its best documented setting and as wide as dtctl."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.measuring import DTCTL
from benchmarks.peers.gauge import Clients
from benchmarks.servers import Servers, loopback_servers
from tests.environments import Recipe, Unfit, build

RECIPE = Recipe(
    "ansible, asyncssh, fabric, mitogen, paramiko, pssh, ClusterShell",
    ("3.12", "3.13", "3.11", "3.10"),
    ("ansible", "asyncssh", "fabric", "mitogen", "paramiko", "parallel-ssh", "ClusterShell"),
)
"""Not pinned: the versions that a user would install today. The page lists them."""

OF_DEBIAN = {"pdsh": ["pdsh", "-V"], "rsync": ["rsync", "--version"], "OpenSSH": ["ssh", "-V"]}


@dataclass(frozen=True)
class Environment:
    python: Path | None
    lacks: str = ""
    """Why there is no such environment."""

    def program(self, name: str) -> str:
        return str(self.python.with_name(name)) if self.python else name

    def missing(self, program: str = "") -> str:
        """Why a contender that needs this environment, or a program of the machine, cannot take part."""
        if program:
            return "" if shutil.which(program) else f"{program} is not installed"
        return self.lacks

    def versions(self) -> list[str]:
        found = [_version_of(name, argv) for name, argv in OF_DEBIAN.items() if shutil.which(argv[0])]
        if self.python:
            ask = f"from importlib.metadata import version\nfor name in {RECIPE.packages}: print(name, version(name))"
            found += _said([str(self.python), "-c", ask]).splitlines()
        return sorted(found, key=str.lower)


def peers() -> Environment:
    try:
        return Environment(build("peers", RECIPE))
    except (Unfit, RuntimeError, OSError) as error:
        return Environment(None, f"no environment of the peers: {str(error).splitlines()[0]}")


def _version_of(name: str, argv: Sequence[str]) -> str:
    found = re.search(r"\d+\.[\w.]+", _said(argv))
    return f"{name} {found.group() if found else ''}".strip()


def _said(argv: Sequence[str]) -> str:
    return subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout


MARK = "DTCTL_BENCHMARK_CLIENT"
"""In the environment of every client, and so of its background processes."""

SAME_FOR_ALL = {"KexAlgorithms": "curve25519-sha256,curve25519-sha256@libssh.org"}
"""The same key exchange for all: OpenSSH's own choice takes ten times the CPU, and not all libraries have it."""

SCRIPT = "set -- $SSH_CONNECTION\n{}\necho reached $3\n"
"""The address of the connection is the third word, so each host answers with its own."""


Argv = Sequence[str | Path]


@dataclass(frozen=True)
class Contender:
    name: str
    how: str
    """Its settings that are not the default, for the table."""
    steps: Mapping[str, Argv]
    """The command for each step that it supports."""
    env: Mapping[str, str]
    ours: bool = False
    kept: bool = False
    """Whether it uses connections that are kept open."""
    lacks: str = ""
    """A requirement that this machine does not meet; empty if there is none."""


@dataclass(frozen=True)
class Field:
    servers: Servers
    width: int
    """The number of hosts at once."""

    @property
    def hosts(self) -> Sequence[str]:
        return self.servers.addresses

    @property
    def directory(self) -> Path:
        return self.servers.directory

    @property
    def description(self) -> Path:
        """The description for the programs of the libraries, written by `field`."""
        return self.directory / "field.json"

    def ssh_config(self, *, kept: bool) -> Path:
        """The configuration of OpenSSH: with new connections, or with connections that are kept open."""
        return self.directory / ("ssh_config_kept" if kept else "ssh_config")

    def env(self, *, kept: bool = False) -> dict[str, str]:
        return {**self.servers.env, MARK: f"{self.directory.name}-{'kept' if kept else 'new'}"}

    def clients(self, *, kept: bool) -> Clients:
        """The processes with this environment."""
        return Clients(f"{MARK}={self.env(kept=kept)[MARK]}", f"ssh: {self.directory}/" if kept else "")

    @property
    def control(self) -> Path:
        """The sockets of OpenSSH's kept connections, except dtctl's, which are in its cache."""
        return self.directory / "cm"

    def put(self, name: str, text: str) -> None:
        """Writes a file into the home of every user."""
        for user in self.servers.sshd.users.values():
            (user.home / name).write_text(text)
            (user.home / name).chmod(0o644)

    def put_script(self, name: str, does: str) -> None:
        """Writes a script that runs a command and prints the host's address."""
        self.put(name, SCRIPT.format(does))


@contextmanager
def field(
    hosts: int, width: int, directory: Path, *, homes: bool, options: Mapping[str, str] = SAME_FOR_ALL
) -> Iterator[Field]:
    """The hosts of a benchmark. `options`: of sshd; without the default, ssh and sshd choose as they come."""
    with loopback_servers(hosts, directory, homes=homes, options=options) as servers:
        made = Field(servers, width)
        ciphers = "  Ciphers ^aes128-gcm@openssh.com\n" if options else ""
        config = f"{servers.ssh_config.read_text()}{ciphers}  LogLevel ERROR\n"
        made.ssh_config(kept=False).write_text(config)
        made.control.mkdir()
        control = f"  ControlMaster auto\n  ControlPath {made.control}/%C\n  ControlPersist 600\n"
        made.ssh_config(kept=True).write_text(config + control)
        places = list(zip(servers.addresses, servers.users, strict=True))
        login = {"port": servers.sshd.port, "key": str(servers.sshd.key)}
        known = {"known_hosts": str(directory / "known_hosts"), "width": width}
        made.description.write_text(json.dumps({"hosts": places, **login, **known}))
        yield made


def dtctl(field: Field, name: str, steps: Mapping[str, Sequence[str]], how: str, *, kept: bool = False) -> Contender:
    """dtctl as a contender, once the cluster file has been written."""
    file = field.directory / ("kept.yaml" if kept else "cluster.yaml")
    if kept:
        file.write_text(file.with_name("cluster.yaml").read_text().replace("ssh: {", "ssh: {client: openssh, ", 1))
    words: dict[str, Argv] = {step: [*DTCTL, command, "-c", file, *rest] for step, (command, *rest) in steps.items()}
    how = _listed(how, "client: openssh" * kept)
    return Contender(_named(name, kept), how, words, field.env(kept=kept), ours=True, kept=kept)


LIBRARIES = Path(__file__).with_name("libraries.py")

Commands = Mapping[str, str]
"""The command of each step, in words that need no quoting."""


def all_new(field: Field, environment: Environment, commands: Commands) -> list[Contender]:
    """The contenders with a connection for each host and step."""
    return [
        library(field, environment, "paramiko", commands, f"{field.width} threads"),
        library(field, environment, "asyncssh", commands, f"{field.width} at once"),
        library(field, environment, "parallel-ssh", commands, f"pool_size {field.width}; checks no host keys"),
        library(field, environment, "fabric", commands, f"{field.width} threads, in_stream=False"),
        library(field, environment, "mitogen", commands, f"{field.width} threads, a Python on each host"),
        *openssh(field, environment, commands, kept=False),
        ansible(field, environment, "raw", commands, kept=False),
    ]


def all_kept(field: Field, environment: Environment, commands: Commands) -> list[Contender]:
    """The contenders with connections that OpenSSH has kept open since the rehearsal."""
    return [
        *openssh(field, environment, commands, kept=True),
        ansible(field, environment, "raw", commands, kept=True),
        ansible(field, environment, "command", commands, kept=True),
    ]


def library(field: Field, environment: Environment, name: str, commands: Commands, how: str) -> Contender:
    steps = {step: script(field, environment, name, "run", command) for step, command in commands.items()}
    return Contender(name, how, steps, field.env(), lacks=environment.missing())


def script(field: Field, environment: Environment, name: str, doing: str, word: str) -> list[str | Path]:
    return [environment.program("python"), LIBRARIES, name, field.description, doing, word]


def openssh(field: Field, environment: Environment, commands: Commands, *, kept: bool) -> Iterator[Contender]:
    """The contenders that start an `ssh` for each host."""
    config, env = field.ssh_config(kept=kept), field.env(kept=kept)
    how = "ControlMaster" if kept else ""
    clush = ["-S", "-f", str(field.width), "-o", f"-F {config}", "-w", ",".join(field.hosts)]
    yield Contender(
        _named("clush", kept),
        _listed(f"-f {field.width}", how),
        {step: [environment.program("clush"), *clush, command] for step, command in commands.items()},
        env,
        kept=kept,
        lacks=environment.missing(),
    )
    pdsh = ["pdsh", "-S", "-R", "ssh", "-f", str(field.width), "-w", ",".join(field.hosts)]
    yield Contender(
        _named("pdsh", kept),
        _listed(f"-f {field.width}", how),
        {step: [*pdsh, command] for step, command in commands.items()},
        {**env, "PDSH_SSH_ARGS": f"-F {config} -- %h"},
        kept=kept,
        lacks=environment.missing("pdsh"),
    )
    yield Contender(
        _named("ssh", kept),
        _listed(f"xargs -P {field.width}", how),
        {step: for_each_host(field, f"ssh -F {config} {{}} {command}") for step, command in commands.items()},
        env,
        kept=kept,
        lacks=environment.missing("ssh"),
    )


def for_each_host(field: Field, command: str, *, width: int | None = None) -> list[str]:
    """The command for each host with xargs, as an administrator would type it; {} stands for the host."""
    return ["sh", "-c", f"printf '%s\\n' {' '.join(field.hosts)} | xargs -P {width or field.width} -I {{}} {command}"]


def ansible(field: Field, environment: Environment, module: str, commands: Commands, *, kept: bool) -> Contender:
    argv = [environment.program("ansible"), "all", "-m", module, "-a"]
    return replace(
        _ansible(field, environment, kept=kept),
        name=_named(f"ansible -m {module}", kept),
        how=_listed(f"forks {field.width}", "pipelining" * (module != "raw"), "ControlPersist" * kept),
        steps={step: [*argv, command] for step, command in commands.items()},
    )


def _ansible(field: Field, environment: Environment, *, kept: bool) -> Contender:
    """A contender with its settings in a file, and no steps yet."""
    home = field.directory / ("ansible-kept" if kept else "ansible")
    home.mkdir(exist_ok=True)
    (home / "hosts").write_text("\n".join(field.hosts) + "\n")
    persist = f"\ncontrol_path_dir = {field.control}" if kept else ""
    master = "-o ControlMaster=auto -o ControlPersist=600s " if kept else ""
    (home / "ansible.cfg").write_text(
        f"[defaults]\ninventory = {home}/hosts\nforks = {field.width}\ninterpreter_python = /usr/bin/python3\n"
        f"[ssh_connection]\npipelining = True\nssh_args = {master}-F {field.ssh_config(kept=False)}{persist}\n"
    )
    env = {**field.env(kept=kept), "ANSIBLE_CONFIG": str(home / "ansible.cfg"), "ANSIBLE_HOME": str(home)}
    return Contender("ansible", "", {}, env, kept=kept, lacks=environment.missing())


def synchronize(field: Field, environment: Environment, arguments: str, steps: tuple[str, ...]) -> Contender:
    argv = [environment.program("ansible"), "all", "-m", "ansible.posix.synchronize", "-a", arguments]
    return replace(
        _ansible(field, environment, kept=False),
        name="ansible synchronize",
        how=f"forks {field.width}; it runs rsync",
        steps=dict.fromkeys(steps, argv),
    )


def _named(name: str, kept: bool) -> str:
    return f"{name}, connected" if kept else name


def _listed(*parts: str) -> str:
    return ", ".join(filter(None, parts))
