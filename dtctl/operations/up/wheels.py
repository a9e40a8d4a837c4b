"""Wheels for hosts that reach no index: pip on this machine gets them, once for each content and kind of Python.

Below the user's cache, wheels/DIGEST/ holds what was complete, and wheels/DIGEST.log the output of the last pip.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from dtctl.agent.host.secrets import Masks
from dtctl.agent.records import spec as records
from dtctl.agent.records.kinds import InvalidValue, checked, parse_json
from dtctl.agent.records.spec import MAKER_SETTINGS
from dtctl.agent.records.starting import PYTHON_FACTS, PythonFacts, PythonResult
from dtctl.bundle import Bundle, FileEntry, Manifest
from dtctl.config.cluster import Environment
from dtctl.config.ranges import fold
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.folder import PRIVATE, Folder, temporary_folder
from dtctl.model import Host, grouped
from dtctl.operations.client import Progress, Request
from dtctl.operations.environments import sha256_of
from dtctl.operations.up.launch import Start
from dtctl.operations.up.result import UpReport
from dtctl.paths import cache_directory, check_private, forget_old
from dtctl.plan.spec import environment_of

_APART = "import os, sys; sys.path[:] = [one for one in sys.path if one not in ('', os.getcwd())]\n"
_PIP = f"""{_APART}
import json
from pip._internal.cli.main import main
from pip._vendor.packaging import markers
facts, known = json.loads(sys.argv.pop(1)), markers.default_environment
markers.default_environment = lambda: {{**known(), **facts}}
sys.exit(main())
"""
"""pip by the environment markers of other hosts, for which it has no option, and without the code's own modules."""

_TAIL_LINES = 15
_FINDS = "PIP_INDEX_URL or PIP_FIND_LINKS here, or in trainer.env, says where pip finds packages"
_BUILDS = "source packages are built only for hosts like this machine (%s); else name a wheel of the code: ./NAME.whl"


def question(launch: Start, host: Host) -> Request[PythonResult] | None:
    """The request for the host's Python; None for a host that needs no wheels."""
    environment = None if host.is_local else _environment(launch, host.name)
    if environment is None:
        return None
    return Request("python", PythonResult, lambda _: {"environment": environment})


def make(launch: Start, pythons: Mapping[str, PythonFacts | None], report: UpReport) -> dict[str, Bundle]:
    """Host -> its wheels, for hosts that need some. Raises PreflightError for packages without wheels."""
    found = {}
    trainer = launch.plan.cluster.trainer
    secret = {name: value for name, value in launch.secrets.items() if name.startswith(MAKER_SETTINGS)}
    lacking = {host: facts for host, facts in pythons.items() if facts is not None}
    envs = {host: said["env"] for host in lacking if (said := _environment(launch, host)) is not None}
    keys = ((json.dumps([facts, envs[host]], sort_keys=True), host) for host, facts in lacking.items())
    assert trainer.environment is not None
    for hosts in grouped(keys).values():
        facts, env = lacking[hosts[0]], envs[hosts[0]]
        for host in hosts:
            report(Progress(host, "wheels"))
        began = time.monotonic()
        files = launch.environment_files
        bundle = Wheels(trainer.environment, trainer.code, files, env, hosts, facts, secret).get()
        report.wheels(hosts, bundle, time.monotonic() - began)
        if bundle.manifest.files:
            found.update(dict.fromkeys(hosts, bundle))
    return found


def _environment(launch: Start, host: str) -> records.Environment | None:
    """The environment as in the host's spec."""
    first = next(iter(launch.plan.may_run(host)), None)
    return environment_of(launch.plan, first, launch.environment_files) if first is not None else None


@dataclass(frozen=True)
class Wheels:
    """The wheels for hosts with the same kind of Python."""

    said: Environment
    code: Path
    files: Mapping[str, str]
    env: Mapping[str, str]
    """Variables for pip in addition to this machine's own."""
    hosts: Sequence[str]
    facts: PythonFacts
    secrets: Mapping[str, str] = field(default_factory=dict)
    """More of them, whose values are masked."""

    def get(self) -> Bundle:
        """The wheels, from the cache or from pip."""
        base = cache_directory() / "wheels"
        said = [self.facts, self.said.what, *(sorted(one.items()) for one in (self.files, self.env, self.secrets))]
        name = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:32]
        check_private(base)
        try:
            with Folder(base, make=PRIVATE) as folder:
                if folder.find(name) is None:
                    with temporary_folder("part-", within=base) as scratch:
                        self._run_pip(scratch.path, folder, f"{name}.log")
                        with suppress(FileExistsError):  # another `up` was faster
                            scratch.move("wheels", folder, name)
                with folder.below(name) as place:
                    place.replace("looked", b"")
            forget_old(base)
            return _bundle(base / name)
        except OSError as error:
            raise PreflightError(f"wheels cannot be kept in {base}", detail=str(error.strerror).lower()) from error

    def _run_pip(self, scratch: Path, logs: Folder, log: str) -> None:
        pip, whom = _pip_for(self.facts), f"{_kind(self.facts)} ({fold(self.hosts)})"
        builds = _is_like(pip.facts, self.facts)
        wheels, requirements = scratch / "wheels", self._requirements(scratch, logs, log)
        words = ["wheel", "--wheel-dir"] if builds else ["download", *_platform(self.facts), "--dest"]
        words += [str(wheels), "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        argv = [pip.python, "-c", _PIP, json.dumps(self.facts["markers"]), *words, "--requirement", requirements]
        hint = _FINDS if builds else _BUILDS % _kind(pip.facts)
        self._run(argv, logs, log, f"pip on this machine cannot get the wheels for {whom}", hint)
        if others := [one.name for one in wheels.iterdir() if one.suffix != ".whl"]:
            raise PreflightError(f"{others[0]} is not a wheel, and none can be built here for {whom}", hint=hint)

    def _requirements(self, scratch: Path, logs: Folder, log: str) -> str:
        """The file for pip; of a uv.lock what it lists."""
        if self.said.kind == "requirements":
            return self.said.what
        uv = shutil.which("uv")
        if uv is None:
            raise PreflightError("uv is not installed here; dtctl needs it to read uv.lock", hint="pip install uv")
        exported = str(scratch / "requirements.txt")
        argv = [uv, "export", "--quiet", "--frozen", "--no-emit-workspace", "--project", self.said.what]
        self._run([*argv, "--output-file", exported], logs, log, "uv cannot export uv.lock", "uv lock    renews it")
        return exported

    def _run(self, argv: Sequence[str], logs: Folder, log: str, failed: str, hint: str) -> None:
        env = {**os.environ, **{name: value for name, value in self.env.items() if "\0" not in value}, **self.secrets}
        done = subprocess.run(
            argv,
            cwd=self.code,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        text = Masks(self.secrets.values()).hide_text(done.stdout.decode(errors="replace"))
        logs.replace(log, text.encode())
        if done.returncode:
            last = text.splitlines()[-_TAIL_LINES:]
            raise PreflightError(failed, detail="\n".join([*last, f"(the whole output: {logs.path / log})"]), hint=hint)


@dataclass(frozen=True)
class _Pip:
    python: str
    facts: PythonFacts


def _pip_for(facts: PythonFacts) -> _Pip:
    """The first Python of this machine that is like those of the hosts, or else the first that has pip."""
    names = ("python3", f"python{facts['markers']['python_version']}")
    candidates = dict.fromkeys([sys.executable, *filter(None, map(shutil.which, names))])
    pips = list(_pips(candidates))
    if not pips:
        raise PreflightError(
            "pip is not installed here; dtctl needs it to get the wheels for the hosts",
            hint=f"{sys.executable} -m ensurepip",
        )
    return next((pip for pip in pips if _is_like(pip.facts, facts)), pips[0])


def _pips(pythons: Mapping[str, Any]) -> Iterator[_Pip]:
    for python in pythons:
        argv = [python, "-c", f"{_APART}import pip\n{PYTHON_FACTS}"]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        try:
            found = checked(PythonFacts, parse_json(done.stdout)) if done.returncode == 0 else None
        except (InvalidValue, ValueError):
            continue
        if found is not None:
            yield _Pip(python, found)


def _is_like(own: PythonFacts, other: PythonFacts) -> bool:
    """Whether packages built with `own` work with `other`: the same kind, and a libc that is not older."""
    markers = [{**one["markers"], "python_full_version": ""} for one in (own, other)]
    libcs = [_glibc(one) for one in (own, other)]
    return markers[0] == markers[1] and own["abi"] == other["abi"] and (libcs[0] or 0) <= (libcs[1] or 0)


def _glibc(facts: PythonFacts) -> int | None:
    found = re.fullmatch(r"glibc 2\.(\d{1,3})(?:\.\d+)?", facts["libc"])
    return int(found.group(1)) if found else None


_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def _platform(facts: PythonFacts) -> list[str]:
    """The options by which pip chooses wheels for others: tags of PEP 425, 600 and 656."""
    markers, newest = facts["markers"], _glibc(facts)
    if markers["sys_platform"] != "linux":
        raise PreflightError(
            f"wheels for {_kind(facts)} can only be made on a machine of that kind",
            hint="without wheels: true the hosts fetch what they need from an index",
        )
    if newest is None:
        tags = ["musllinux_1_2", "musllinux_1_1"]
    else:
        named = ((f"manylinux_2_{minor}", _LEGACY.get(minor)) for minor in range(newest, 4, -1))
        tags = [tag for both in named for tag in both if tag]
    platforms = [f"--platform={tag}_{markers['platform_machine']}" for tag in (*tags, "linux")]
    abis = [f"--abi={abi}" for abi in (facts["abi"], "abi3", "none")]
    version = f"--python-version={markers['python_version']}"
    return ["--only-binary=:all:", "--implementation=cp", version, *abis, *platforms]


def _kind(facts: PythonFacts) -> str:
    """Python 3.11 on linux x86_64 with glibc 2.36"""
    one = facts["markers"]
    kind = f"Python {one['python_version']} on {one['sys_platform']} {one['platform_machine']}"
    return kind + (f" with {facts['libc']}" if facts["libc"] else "")


def _bundle(place: Path) -> Bundle:
    wheels = sorted(place.glob("*.whl"))
    files = (FileEntry(one.name, 0o644, one.stat().st_size, sha256_of(one)) for one in wheels)
    return Bundle(place, Manifest(tuple(files), links=(), dirs=()), skipped=())
