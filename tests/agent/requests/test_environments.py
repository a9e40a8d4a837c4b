"""The trainers' environment: made once for its content, whole or not at all, and removed when no run uses it."""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost, AgentRefused, Fields, kill, shell
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


def test_a_host_answers_with_its_python_until_its_environment_is_made(host: AgentHost) -> None:
    python = host.ask("python", environment=wanted(host))["python"]
    assert re.fullmatch(r"3\.\d+", python["markers"]["python_version"])
    trained(host, spec_with(host, wanted(host)))
    assert host.ask("python", environment=wanted(host))["python"] is None
    with pytest.raises(AgentRefused, match="has no python9 to create the environment"):
        host.ask("python", environment=wanted(host, python="python9"))


def test_other_content_is_another_environment(host: AgentHost) -> None:
    make_wheel(host.home / "wheels", "probe", "2.0")
    assert trained(host, spec_with(host, wanted(host, "probe==1.0\n"))).startswith("1.0 ")
    assert trained(host, spec_with(host, wanted(host, "probe==2.0\n"))).startswith("2.0 ")
    assert len(made(host)) == 2


def test_a_file_with_hashes_is_installed_only_if_they_match(host: AgentHost) -> None:
    digest = hashlib.sha256(make_wheel(host.home / "wheels", "probe").read_bytes()).hexdigest()
    trained(host, spec_with(host, wanted(host, f"probe==1.0 --hash=sha256:{digest}\n")))
    make_wheel(host.home / "wheels", "probe", text="# changed")
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, wanted(host, f"probe==1.0 --hash=sha256:{digest[::-1]}\n")))
    assert refused.value.code == "setup_failed"
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.value.frame["detail"]


def test_a_making_that_fails_is_a_failed_setup_and_leaves_its_log(host: AgentHost) -> None:
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, wanted(host, "no-such-package\n")))
    assert refused.value.code == "setup_failed"
    what = "the environment (requirements: requirements.txt) ended with exit code 1"
    assert refused.value.frame["summary"] == what
    assert [path for path in host.root.glob("environments/*") if path.is_dir()] == []
    [log] = host.ask("setup_logs")["logs"]
    assert log["path"] in refused.value.frame["hint"]
    assert "No matching distribution found for no-such-package" in log["text"]


def test_the_setup_runs_within_the_environment_and_again_in_a_new_one(host: AgentHost) -> None:
    setup = {"text": 'python -c "import sys; print(sys.prefix)" >> $HOME/ran', "env": {}}
    for _ in range(2):
        trained(host, spec_with(host, wanted(host), setup=setup))
    [first] = made(host)
    shutil.rmtree(first)
    trained(host, spec_with(host, wanted(host), setup=setup))
    [second] = made(host)
    assert (host.home / "ran").read_text() == f"{first}/env\n{second}/env\n"


def test_a_making_that_was_killed_is_never_used_and_removed_by_the_next(host: AgentHost) -> None:
    environment = wanted(host)
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


def test_hosts_that_share_a_home_make_it_once_at_the_same_time(make_host: MakeHost) -> None:
    first = make_host("h1")
    second = make_host("h2", root=first.root)
    environment = wanted(first)
    (second.home / "requirements.txt").write_text("probe\n")
    with ThreadPoolExecutor() as both:
        logs = list(both.map(lambda host: trained(host, spec_with(host, {**environment})), (first, second)))
    [directory] = made(first)
    assert logs == [f"1.0 {directory}/env\n"] * 2


MADE = 'python3 -m venv --without-pip "$1" && mkdir -p "$1/etc/conda/activate.d" && echo "export MARK=set" > "$1$2"'
UV = '[ "$1 $2 $3 $4" = "sync --project . --frozen" ] && set -- "$UV_PROJECT_ENVIRONMENT" /made'
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


def test_gc_removes_an_environment_with_the_last_run_that_uses_it(host: AgentHost) -> None:
    spec = spec_with(host, wanted(host), "sleep 1000", ttl_s=0)
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


def test_settings_that_are_secrets_take_part_and_are_masked(host: AgentHost) -> None:
    environment = wanted(host, "no-such-package\n")
    secret = environment["env"].pop("PIP_FIND_LINKS")
    shutil.move(secret, f"{secret}-hunter2")
    with pytest.raises(AgentRefused) as refused:
        host.up(spec_with(host, environment), secrets={"PIP_FIND_LINKS": f"{secret}-hunter2", "OTHER": "x"})
    assert "Looking in links: ***" in refused.value.frame["detail"]
    trained(host, spec_with(host, wanted(host, "probe\n")))
