"""The contenders that run a command on every host, each at its best documented setting and as wide as dtctl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.contest import Contender
from benchmarks.peers.environment import Environment
from benchmarks.peers.field import Field

SCRIPTS = Path(__file__).with_name("scripts")

Commands = Mapping[str, str]
"""The command of each step, in words that need no quoting."""


def all_new(field: Field, environment: Environment, commands: Commands) -> list[Contender]:
    """A connection for each host and step."""
    return [
        library(field, environment, "paramiko", commands, f"{field.width} threads"),
        library(field, environment, "asyncssh", commands, f"{field.width} at once"),
        library(field, environment, "parallel-ssh", commands, f"pool_size {field.width}; checks no host keys"),
        library(field, environment, "fabric", commands, f"{field.width} threads, in_stream=False"),
        *openssh(field, environment, commands, kept=False),
        ansible(field, environment, "raw", commands, kept=False),
    ]


def all_kept(field: Field, environment: Environment, commands: Commands) -> list[Contender]:
    """Over connections that OpenSSH has kept open since the rehearsal."""
    return [
        *openssh(field, environment, commands, kept=True),
        ansible(field, environment, "raw", commands, kept=True),
        ansible(field, environment, "command", commands, kept=True),
    ]


def library(field: Field, environment: Environment, name: str, commands: Commands, how: str) -> Contender:
    steps = {step: script(field, environment, name, "run", command) for step, command in commands.items()}
    return Contender(name, how, steps, field.env(), lacks=environment.missing())


def script(field: Field, environment: Environment, name: str, doing: str, word: str) -> list[str | Path]:
    program = SCRIPTS / f"{name.replace('-', '_')}_hosts.py"
    return [environment.program("python"), program, field.description, doing, word]


def openssh(field: Field, environment: Environment, commands: Commands, *, kept: bool) -> Iterator[Contender]:
    """The ones that start an `ssh` for each host."""
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
    """By xargs, as an administrator would; {} stands for the host."""
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
    """One with its settings in a file, and no steps yet."""
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
