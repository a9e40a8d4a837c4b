"""The trainers' environment: made once for its content, whole or not at all, and removed when no run uses it."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost, AgentRefused, Fields, kill, shell
from tests.hosts.once import once
from tests.waiting import eventually
from tests.wheels import make_wheel

TRAIN = 'exec "$DTCTL_PYTHON" -c "import probe, sys; print(probe.VERSION, sys.prefix)"'


def wanted(host: AgentHost, lines: str = "probe\n", **fields: object) -> Fields:
    """As a controller sends it, of a requirements.txt where the code is; the wheels lie beside it."""
    make_wheel(host.home / "wheels", "probe")
    (host.home / "requirements.txt").write_text(lines)
    files = {"requirements.txt": hashlib.sha256(lines.encode()).hexdigest()}
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(host.home / "wheels")}
    return {"kind": "requirements", "what": "requirements.txt", "files": files, "env": env, **fields}


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter whose `-m venv` copies a virtual environment, which is quicker and has the same pip."""
    return str(once("copying-python", copying_python) / "python")


def copying_python(directory: Path) -> None:
    directory.mkdir()
    template, program = directory / "template", directory / "python"
    subprocess.run([sys.executable, "-m", "venv", template], check=True)
    program.write_text(
        f"""#!/bin/sh
[ "$1 $2" = "-m venv" ] || exec {sys.executable} "$@"
cp -al {template} "$3" && sed -i "s|{template}|$3|g" "$3/bin/activate"
"""
    )
    program.chmod(0o755)


def files_of(host: AgentHost, *names: str) -> Fields:
    return {name: hashlib.sha256((host.home / name).read_bytes()).hexdigest() for name in names}


def spec_with(host: AgentHost, environment: Fields, script: str = TRAIN, **fields: object) -> Fields:
    return host.spec(shell("worker:0", script), environment=environment, **fields)


def trained(host: AgentHost, spec: Fields) -> str:
    host.up(spec)
    eventually(lambda: host.state(spec)["finished"])
    return host.log(spec, "worker:0")


def made(host: AgentHost) -> list[Path]:
    return sorted(path.parent for path in host.root.glob("environments/*/environment.json"))


def test_an_environment_is_made_once_and_its_python_trains(host: AgentHost) -> None:
    logs = [trained(host, spec_with(host, wanted(host))) for _ in range(2)]
    [directory] = made(host)
    assert logs == [f"1.0 {directory}/env\n"] * 2


def test_a_host_reports_whether_it_has_the_environment(host: AgentHost, python: str) -> None:
    assert host.ask("environment", environment=wanted(host, python=python))["exists"] is False
    trained(host, spec_with(host, wanted(host, python=python)))
    assert host.ask("environment", environment=wanted(host, python=python))["exists"] is True
    assert host.ask("environment", environment=wanted(host, python=python, wheels="a" * 64))["exists"] is False
    with pytest.raises(AgentRefused, match="has no python9 to create the environment"):
        host.ask("environment", environment=wanted(host, python="python9"))


INCLUDES = {
    "-r hidden.txt": b"-r hidden.txt\n",
    "--pre -r hidden.txt": b"--pre -r hidden.txt\n",
    "--requirem=hidden.txt": b"--requirem=hidden.txt\n",
    "two in a line": b"-r other.txt -r hidden.txt\n",
    "of a variable": b"-r ${PWD}/hidden.txt\n",
    "in utf-7": b"# -*- coding: utf-7 -*-\n+AC0-r hidden.txt\n",
    "in UTF-16": "-r hidden.txt\n".encode("utf-16"),
    "a constraint": b"--constrai=hidden.txt\n",
    "a directory": b"--pre ./evil\nprobe @ file:evil\n",
    "find-links": b"--no-index --find-links evil\n",
}
"""Lines of a requirements file that make pip read something else, in forms that a simple parser does not recognise."""


@pytest.mark.parametrize("name", INCLUDES)
def test_pip_finds_of_the_code_only_what_the_environment_names(host: AgentHost, python: str, name: str) -> None:
    """What it reads is part of the environment's identity, however the file says it, and nothing else is there."""
    environment, content = wanted(host, python=python), INCLUDES[name]
    for file in ("hidden.txt", "other.txt"):
        (host.home / file).write_text("probe\n")
    (host.home / "evil").mkdir()
    (host.home / "evil/setup.py").write_text(f"open({str(host.home / 'ran')!r}, 'w')\nraise SystemExit('ran')\n")
    make_wheel(host.home / "evil", "evil")
    (host.home / "requirements.txt").write_bytes(content + (b"evil\n" if name == "find-links" else b""))
    environment["files"] = files_of(host, "requirements.txt")
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, environment))
    assert refused.value.code == "setup_failed"
    assert "only the files named in trainer.environment are there" in refused.value.frame["hint"]
    assert not (host.home / "ran").exists()


def test_another_content_of_an_included_file_is_another_environment(host: AgentHost, python: str) -> None:
    make_wheel(host.home / "wheels", "probe", "2.0")
    for version in ("1.0", "2.0"):
        environment = wanted(host, "--pre -r lib/pins.txt\n--requirem=lib/base.txt\n", python=python)
        (host.home / "lib").mkdir(exist_ok=True)
        (host.home / "lib/pins.txt").write_text("-c ../constraints.txt\n")
        (host.home / "lib/base.txt").write_text("probe\n")
        (host.home / "constraints.txt").write_text(f"probe=={version}\n")
        environment["files"] = files_of(host, "requirements.txt", "lib/pins.txt", "lib/base.txt", "constraints.txt")
        assert trained(host, spec_with(host, environment)).startswith(f"{version} ")
    assert len(made(host)) == 2


@pytest.mark.parametrize("path", ["/tmp/x", "../x", "a/../../x", "a/.."])
def test_a_file_of_an_environment_lies_within_the_code(host: AgentHost, path: str) -> None:
    with pytest.raises(AgentRefused, match="a path within the code directory"):
        host.ask("environment", environment=wanted(host, files={path: "0" * 64}))


def with_wheels(host: AgentHost, lines: str, *wheels: str, **fields: object) -> Fields:
    """An environment from wheels, which lie where a bundle of them does."""
    environment = wanted(host, lines, wheels=uuid.uuid4().hex * 2, env={}, **fields)
    shutil.rmtree(host.home / "wheels")
    tree = host.root / "bundles" / environment["wheels"] / "tree"
    for name in wheels:
        made_wheel = make_wheel(tree, name.partition("-")[0])
        made_wheel.rename(tree / name)
    return environment


PROBE = "probe-1.0-py3-none-any.whl"


def test_wheels_are_installed_without_an_index_by_what_pip_reads(host: AgentHost, python: str) -> None:
    lines = "probe; python_version > '3'\nother; python_version < '3'\n"
    environment = with_wheels(host, lines, PROBE, python=python)
    environment["env"] = {"PIP_INDEX_URL": "http://127.0.0.1:1/", "PIP_RETRIES": "0"}
    assert trained(host, spec_with(host, environment)).startswith("1.0 ")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("probe\nother\n", "No matching distribution found for other"),
        ("probe\nforeign\n", "No matching distribution found for foreign"),
        (f"probe==1.0 --hash=sha256:{'0' * 64}\n", "THESE PACKAGES DO NOT MATCH THE HASHES"),
        ("--require-hashes\nprobe==1.0\n", "Hashes are required in --require-hashes mode"),
    ],
)
def test_the_reason_why_pip_cannot_install_the_wheels_is_shown(
    host: AgentHost, python: str, lines: str, said: str
) -> None:
    foreign = "foreign-1.0-cp27-cp27m-manylinux1_x86_64.whl"
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, with_wheels(host, lines, PROBE, foreign, python=python)))
    assert said in refused.value.frame["detail"]
    assert "packages come from the wheels alone" in refused.value.frame["hint"]


def test_wheels_whose_hashes_match_are_installed(host: AgentHost, python: str) -> None:
    digest = hashlib.sha256(make_wheel(host.home / "same", "probe").read_bytes()).hexdigest()
    environment = with_wheels(host, f"--require-hashes\nprobe==1.0 --hash=sha256:{digest}\n", PROBE, python=python)
    assert trained(host, spec_with(host, environment)).startswith("1.0 ")


def test_wheels_that_are_not_on_the_host_are_missed_before_anything_is_created(host: AgentHost) -> None:
    with pytest.raises(AgentRefused, match="its wheels are not on this host"):
        host.up(spec_with(host, wanted(host, wheels="b" * 64)))
    assert list(host.root.glob("environments/*/")) == []


def test_other_content_is_another_environment(host: AgentHost, python: str) -> None:
    make_wheel(host.home / "wheels", "probe", "2.0")
    assert trained(host, spec_with(host, wanted(host, "probe==1.0\n", python=python))).startswith("1.0 ")
    assert trained(host, spec_with(host, wanted(host, "probe==2.0\n", python=python))).startswith("2.0 ")
    assert len(made(host)) == 2


def test_a_file_with_hashes_is_installed_only_if_they_match(host: AgentHost, python: str) -> None:
    digest = hashlib.sha256(make_wheel(host.home / "wheels", "probe").read_bytes()).hexdigest()
    trained(host, spec_with(host, wanted(host, f"probe==1.0 --hash=sha256:{digest}\n", python=python)))
    make_wheel(host.home / "wheels", "probe", text="# changed")
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, wanted(host, f"probe==1.0 --hash=sha256:{digest[::-1]}\n", python=python)))
    assert refused.value.code == "setup_failed"
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.value.frame["detail"]


def test_a_making_that_fails_is_a_failed_setup_and_leaves_its_log(host: AgentHost, python: str) -> None:
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, wanted(host, "no-such-package\n", python=python)))
    assert refused.value.code == "setup_failed"
    what = "the environment (requirements: requirements.txt) ended with exit code 1"
    assert refused.value.frame["summary"] == what
    assert [path for path in host.root.glob("environments/*") if path.is_dir()] == []
    [log] = host.ask("setup_logs")["logs"]
    assert log["path"] in refused.value.frame["hint"]
    assert "No matching distribution found for no-such-package" in log["text"]


def test_the_setup_runs_within_the_environment_and_again_in_a_new_one(host: AgentHost, python: str) -> None:
    setup = {"text": 'python -c "import sys; print(sys.prefix)" >> $HOME/ran', "env": {}}
    for _ in range(2):
        trained(host, spec_with(host, wanted(host, python=python), setup=setup))
    [first] = made(host)
    shutil.rmtree(first)
    trained(host, spec_with(host, wanted(host, python=python), setup=setup))
    [second] = made(host)
    assert (host.home / "ran").read_text() == f"{first}/env\n{second}/env\n"


def test_a_making_that_was_killed_is_never_used_and_removed_by_the_next(host: AgentHost, python: str) -> None:
    environment = wanted(host, python=python)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        del environment["env"]["PIP_NO_INDEX"]
        environment["env"].update(PIP_INDEX_URL=f"http://127.0.0.1:{silent.getsockname()[1]}/", PIP_RETRIES="0")
        talk = host.open()
        spec = spec_with(host, environment)
        talk.send("up", **host.about({"spec": spec, "bundle": None, "secrets": {}, "replace": False}))
        with silent.accept()[0]:  # pip waits for an answer
            for pid in host.processes():
                kill(pid)
            talk.close()
    [half_made] = host.root.glob("environments/*/env")
    assert trained(host, spec_with(host, environment)).startswith("1.0 ")
    assert not half_made.exists()
    assert len(made(host)) == 1


def test_hosts_that_share_a_home_make_it_once_at_the_same_time(make_host: MakeHost, python: str) -> None:
    first = make_host("h1")
    second = make_host("h2", root=first.root)
    environment = wanted(first, python=python)
    (second.home / "requirements.txt").write_text("probe\n")
    with ThreadPoolExecutor() as both:
        logs = list(both.map(lambda host: trained(host, spec_with(host, {**environment})), (first, second)))
    [directory] = made(first)
    assert logs == [f"1.0 {directory}/env\n"] * 2


MADE = 'python3 -m venv --without-pip "$1" && mkdir -p "$1/etc/conda/activate.d" && echo "export MARK=set" > "$1$2"'
UV = '[ "$1 $2 $3 $4 $5" = "sync --project . --no-progress --frozen" ] && set -- "$UV_PROJECT_ENVIRONMENT" /made'
CREATE = '[ "$1 $2 $3 $5 $6" = "env create --prefix --file e.yml" ] && set -- "$4" /etc/conda/activate.d/mark.sh'
RUN = '[ "$*" = "run --name base printenv CONDA_PREFIX" ] && echo ~/base && set -- ~/base /etc/conda/activate.d/m.sh'
MODULE = 'module() { [ "$*" = "load tools/1 more" ] && export MARK=set PATH="$HOME/base/bin:$PATH"; }'


@pytest.mark.parametrize(
    ("kind", "what", "program", "marked"),
    [
        ("uv", ".", f"{UV} && {MADE}", False),
        ("conda", "e.yml", f"{CREATE} && {MADE}", True),
        ("conda", "base", f"{RUN} && {{ {MADE}; }} >&2", True),
        ("modules", "tools/1 more", MODULE, True),
    ],
)
def test_each_kind_gives_trainers_its_python_and_what_it_sets(
    host: AgentHost, kind: str, what: str, program: str, marked: bool
) -> None:
    """The programs are stand-ins, which know nothing but the words that the real ones take."""
    names = ["pyproject.toml", "uv.lock"] if kind == "uv" else [what] if what.endswith(".yml") else []
    for name in names:
        (host.home / name).touch()
    if kind == "modules":
        (host.home / ".bash_profile").write_text(program)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", host.home / "base"], check=True)
    else:
        stand_in = host.directory / "bin" / kind
        stand_in.write_text(f"#!/bin/sh\n{program}\n")
        stand_in.chmod(0o755)
    empty = hashlib.sha256(b"").hexdigest()
    environment = {"kind": kind, "what": what, "files": dict.fromkeys(names, empty)}
    script = 'echo "${MARK-} $DTCTL_PYTHON"; exec "$DTCTL_PYTHON" -c "import sys; print(sys.prefix)"'
    mark_and_python, prefix = trained(host, spec_with(host, environment, script)).splitlines()
    mark, python = mark_and_python.split(" ")
    assert mark == ("set" if marked else "")
    assert Path(python).parent.parent == Path(prefix)
    assert prefix == str(host.home / "base" if "base" in program else made(host)[0] / "env")


def test_gc_removes_an_environment_with_the_last_run_that_uses_it(host: AgentHost, python: str) -> None:
    spec = spec_with(host, wanted(host, python=python), "sleep 1000", ttl_s=0)
    host.up(spec)
    [directory] = made(host)
    assert host.ask("gc", dry_run=False, all=True)["environments"] == []
    host.ask("stop", by="ada", grace_s=0)
    eventually(lambda: host.state(spec)["finished"])
    time.sleep(0.01)
    seen = host.ask("gc", dry_run=True, all=True)
    assert seen["environments"] == [str(directory)]
    assert directory.exists()
    gone = host.ask("gc", dry_run=False, all=True)
    assert gone["environments"] == [str(directory)]
    assert list(host.root.glob("environments/*")) == []


def test_code_that_is_not_what_the_controller_read_is_refused(host: AgentHost) -> None:
    environment = wanted(host)
    (host.home / "requirements.txt").write_text("other\n")
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, environment))
    assert "requirements.txt changed while it was sent" in refused.value.frame["summary"]


def test_an_interpreter_that_is_not_there_is_named(host: AgentHost) -> None:
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, wanted(host, python="python9.9")))
    assert refused.value.frame["summary"] == "this host has no python9.9 to create the environment"


def test_settings_that_are_secrets_take_part_and_are_masked(host: AgentHost, python: str) -> None:
    environment = wanted(host, "no-such-package\n", python=python)
    secret = environment["env"].pop("PIP_FIND_LINKS")
    shutil.move(secret, f"{secret}-hunter2")
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, environment), secrets={"PIP_FIND_LINKS": f"{secret}-hunter2", "OTHER": "x"})
    assert "Looking in links: ***" in refused.value.frame["detail"]
    trained(host, spec_with(host, wanted(host, "probe\n", python=python)))
