"""What this machine lacks for a start, which of its ports are free, and which Python trains on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from dtctl.agent.host import ports as host_ports
from dtctl.config.load import check_cluster
from dtctl.errors import ConfigError, PreflightError
from dtctl.operations import local as local_ports
from dtctl.operations.local import LocalPorts, Runtime, local_python
from dtctl.operations.up.review import TrainerProgram, program_of, review

TEXT = """\
name: demo
hosts: {a: 10.0.0.1}
jobs: {worker: {hosts: a}}
trainer:
  command: COMMAND
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "project" / "pkg").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    for name in ("train.py", "run.sh", "pkg/main.py", "pkg/__init__.py"):
        Path(name).touch()


def look(
    command: str = "[python, train.py]",
    more: str = "",
    *,
    environ: Mapping[str, str] | None = None,
    local: bool = False,
    started: bool = True,
) -> tuple[list[str], list[str]]:
    """Mistakes and doubts, each less its line and hint."""
    file = Path("cluster.yaml")
    file.write_text(TEXT.replace("COMMAND", command) + more)
    checked = check_cluster(file)
    try:
        doubts = review(checked, environ or {}, local=local, started=started).doubts
    except ConfigError as error:
        return [one.summary for one in error.problems], [one.summary for one in error.doubts]
    return [], [one.summary for one in doubts]


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py --x", TrainerProgram("train.py", 1)),
        ("python3.11 -u -X dev -W ignore train.py", TrainerProgram("train.py", 6)),
        ("/opt/bin/python -m pkg.main x", TrainerProgram("pkg.main", 2, is_module=True)),
        ("python -c pass", None),
        ("python -m", None),
        ("python", None),
        ("bash run.sh", TrainerProgram("run.sh", 1)),
        ("bash -c ls", None),
        ("./run.sh x", TrainerProgram("./run.sh", 0)),
        ("torchrun train.py", None),
    ],
)
def test_the_program_of_a_command_is_known_where_its_words_tell(command: str, program: TrainerProgram | None) -> None:
    assert program_of(command.split()) == program


@pytest.mark.parametrize(
    "command",
    [
        "[python, train.py]",
        "[python, ./pkg/main.py]",
        "[python, -m, pkg.main]",
        "[python, -m, pkg]",
        "[python, -m, torch.distributed.run, nothing.py]",
        "[./run.sh]",
        "[/opt/program]",
        "[python, '{work_dir}/x.py']",
    ],
)
def test_a_program_in_the_code_or_undeterminable_is_accepted(command: str) -> None:
    assert look(command, "dirs: {work: w}\n") == ([], [])


def test_script_outside_the_code_is_an_error_or_a_doubt_where_a_setup_may_make_it() -> None:
    here = Path.cwd()
    assert look("[python, trian.py]") == ([f"trainer.command[1]: there is no trian.py in the code, {here}"], [])
    mistakes, doubts = look("[python, trian.py]", "  setup: make\n")
    assert mistakes == []
    assert doubts == [f"trainer.command[1]: there is no trian.py in the code, {here}; does trainer.setup create it?"]
    assert look("[python, ../x.py]")[0] == [f"trainer.command[1]: ../x.py lies outside of the code directory {here}"]


def test_a_script_that_the_ignore_rules_leave_out_is_reported_as_that() -> None:
    Path(".dtctlignore").write_text("train.py\npkg/\n")
    summary = "is not pushed: the ignore rules leave it out"
    assert look()[0] == [f"trainer.command[1]: train.py {summary}"]
    assert look("[python, pkg/main.py]")[0] == [f"trainer.command[1]: pkg/main.py {summary}"]
    assert look("[python, -m, pkg.main]")[0] == [f"trainer.command[2]: the module pkg.main {summary}"]


def test_module_missing_in_a_package_of_the_code_is_an_error_and_others_are_not() -> None:
    here = Path.cwd()
    assert look("[python, -m, pkg.mian]")[0] == [f"trainer.command[2]: there is no module pkg.mian in the code, {here}"]
    assert look("[python, -m, trian]") == (
        [],
        ["trainer.command[2]: there is no module trian in the code; it has to be installed"],
    )


def test_the_command_of_a_job_is_looked_at_where_it_stands() -> None:
    mistakes, _ = look("[python, train.py]", "success: lead\n")
    assert mistakes == []
    Path("cluster.yaml").write_text(
        TEXT.replace("COMMAND", "x").replace("{hosts: a}", "{hosts: a, command: python gone.py}")
    )
    checked = check_cluster(Path("cluster.yaml"))
    with pytest.raises(ConfigError) as caught:
        review(checked, {})
    assert (caught.value.problems[0].place.line, caught.value.problems[0].place.column) == (3, 36)


def test_a_secret_without_a_value_is_reported_by_its_name() -> None:
    more = "  secrets: [A_KEY, B_KEY]\n"
    assert look(more=more, environ={"A_KEY": "x"})[0] == ["trainer.secrets names B_KEY, which has no value here"]
    assert look(more=more, environ={"A_KEY": "x", "B_KEY": ""}) == ([], [])
    Path("env").write_text("A_KEY=x\n")
    found = look(more=f"{more}  env_file: env\n")[0]
    assert found == [f"trainer.secrets names B_KEY, which has a value neither in {Path.cwd()}/env nor here"]


def test_missing_env_file_is_reported_with_all_other_errors_except_its_secrets() -> None:
    mistakes, _ = look("[python, gone.py, '{data_dir}']", "  secrets: [A_KEY]\n  env_file: env\n")
    here = Path.cwd()
    assert mistakes == [
        f"trainer.command[1]: there is no gone.py in the code, {here}",
        "trainer.command[2]: {data_dir} has no value, because dirs.data is not set",
        f"trainer.env_file is 'env', but there is no file {here}/env",
    ]


def test_invalid_env_file_is_reported_with_all_other_mistakes_without_its_content() -> None:
    Path("env").write_text("hunter2\n")
    mistakes, _ = look("[python, gone.py]", "  secrets: [A_KEY]\n  env_file: env\n")
    here = Path.cwd()
    assert mistakes == [
        f"trainer.command[1]: there is no gone.py in the code, {here}",
        f"trainer.env_file: {here}/env:1: not a line of the form NAME=VALUE",
    ]


def test_code_that_is_not_here_or_cannot_be_sent_hides_no_other_mistake() -> None:
    secret = "trainer.secrets names A_KEY, which has no value here"
    mistakes, _ = look(more="  code: nowhere\n  secrets: [A_KEY]\n")
    assert mistakes == [f"trainer.code is 'nowhere', but there is no directory {Path.cwd()}/nowhere", secret]
    Path("away").symlink_to("/etc/hostname")
    assert look(more="  secrets: [A_KEY]\n")[0] == [secret]
    with pytest.raises(PreflightError, match="a target outside the code directory"):
        look()


def test_key_files_that_are_not_there_are_asked_about_once_and_not_for_a_run_here() -> None:
    more = "ssh: {identity_file: key, known_hosts: known_hosts}\n"
    here = Path.cwd()
    doubts = [
        f"ssh.identity_file: there is no file {here}/key",
        f"ssh.known_hosts: there is no file {here}/known_hosts",
    ]
    assert look(more=more) == ([], doubts)
    assert look(more=more, local=True) == ([], [])
    assert look(more=more.replace("}", ", host_keys: accept-new}")) == ([], doubts[:1])
    for name in ("key", "known_hosts"):
        Path(name).touch()
    assert look(more=more) == ([], [])


def test_the_python_of_a_run_here_has_to_be_here() -> None:
    more = "  python: /no/such/python\n"
    assert look(more=more) == ([], [])
    assert look(more=more, local=True)[0] == ["trainer.python is '/no/such/python', which this machine does not have"]
    with pytest.raises(ConfigError) as refused:
        review(check_cluster(Path("cluster.yaml")), {}, local=True)
    assert refused.value.problems[0].hint.endswith("dtctl up --force    starts anyway")
    (summary,) = look(more="  venv: ~/venv\n", local=True)[0]
    assert summary == f"trainer.venv is '~/venv', but this machine has no {Path.home()}/venv/bin/python"
    assert look(more="  venv: ~/venv\n  setup: make\n", local=True) == ([], [])


def test_needs_that_nothing_says_the_origin_of_are_asked_about_before_a_start_alone() -> None:
    Path("requirements.txt").write_text("# ours\nnumpy>=1\n\ntensorflow  # big\n")
    assert look() == ([], [])
    (summary,) = look(started=False)[1]
    assert summary.startswith("nothing installs requirements.txt: the hosts' own python3 has to have its packages")
    assert look(more="  setup: pip install -r requirements.txt\n", started=False) == ([], [])
    assert look(more="  python: /opt/python\n", started=False) == ([], [])


def test_wheels_among_the_code_are_doubted_with_the_lines_to_type() -> None:
    assert look() == ([], [])
    Path("wheels").mkdir()
    for name in ("a", "b"):
        Path(f"wheels/{name}-1-py3-none-any.whl").write_bytes(bytes(3_000_000))
    assert look() == ([], ["2 wheels (6 MB) in wheels are sent to every host as code"])
    Path("requirements.txt").touch()
    declared = "  environment: {requirements: requirements.txt, wheels: wheels}\n"
    assert look(more=declared) == ([], []), "they are sent as wheels"
    Path(".dtctlignore").write_text("*.whl\n")
    assert look() == ([], [])
    Path(".dtctlignore").unlink()
    checked = check_cluster(Path("cluster.yaml"))
    [doubt] = review(checked, {}).doubts
    assert "environment: {requirements: requirements.txt, wheels: wheels}" in doubt.hint
    assert "*.whl in .dtctlignore" in doubt.hint


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def is_free(port: int, table: Path = Path("/proc/net/unix")) -> bool:
    ports = LocalPorts(table)
    try:
        return ports.is_free(port)
    finally:
        ports.give_back()


def test_a_chosen_port_is_not_free_for_others_until_given_back(port: int) -> None:
    one, other = LocalPorts(), LocalPorts()
    assert (one.is_free(port), other.is_free(port), one.is_free(port)) == (True, False, True)
    one.give_back()
    assert other.is_free(port)
    other.give_back()


def test_two_agents_may_claim_a_port_and_a_refused_one_is_not_kept_from_others(port: int) -> None:
    one = host_ports.claim([port])
    two = host_ports.claim([port, port])  # of the same process: its name is taken, and that is nobody's trouble
    looking = LocalPorts()
    assert not looking.is_free(port)
    for claim in (*one, *two):
        os.close(claim)
    assert is_free(port)
    assert local_ports._CLAIM.format(port) == host_ports.CLAIM % port


def test_port_with_a_listener_is_not_free(port: int) -> None:
    with socket.socket() as listener:
        listener.bind(("", port))
        listener.listen()
        assert not LocalPorts().is_free(port)


def test_a_system_without_such_names_has_free_ports_too(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ports, "_CHOOSING", "x" * 200 + "{}")
    assert LocalPorts(tmp_path / "none").is_free(port)


def environment(directory: Path, *marks: str) -> str:
    (directory / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (directory / "bin" / name).touch(mode=0o755)
    for mark in marks:
        (directory / mark).touch()
    return str(directory)


def runtime(prefix: str, *, in_environment: bool = True) -> Runtime:
    return Runtime(f"{prefix}/bin/python", prefix, in_environment)


@pytest.mark.parametrize("mark", ["uv-receipt.toml", "pipx_metadata.json"])
def test_under_uv_tool_and_pipx_the_active_environment_trains(tmp_path: Path, mark: str) -> None:
    own = runtime(environment(tmp_path / "tools" / "dtctl", mark))
    active, conda = environment(tmp_path / "active"), environment(tmp_path / "conda")
    path = f"{environment(tmp_path / 'usual')}/bin"
    assert local_python({"VIRTUAL_ENV": active, "CONDA_PREFIX": conda, "PATH": path}, own) == f"{active}/bin/python"
    assert local_python({"CONDA_PREFIX": conda, "PATH": path}, own) == f"{conda}/bin/python"
    assert local_python({"PATH": path}, own) == f"{path}/python3"
    assert local_python({"PATH": "/nowhere"}, own) == own.executable


def test_a_dtctl_in_an_environment_of_the_users_own_trains_with_its_python(tmp_path: Path) -> None:
    own = runtime(environment(tmp_path / ".venv"))
    conda, active = environment(tmp_path / "conda"), environment(tmp_path / "active")
    assert local_python({"PATH": "/usr/bin"}, own) == own.executable
    assert local_python({"CONDA_PREFIX": conda}, own) == own.executable
    assert local_python({"VIRTUAL_ENV": active}, own) == f"{active}/bin/python"


def test_a_dtctl_of_the_system_gives_way_to_any_active_environment(tmp_path: Path) -> None:
    own = runtime("/usr", in_environment=False)
    conda = environment(tmp_path / "conda")
    assert local_python({"CONDA_PREFIX": conda}, own) == f"{conda}/bin/python"
    assert local_python({}, own) == "/usr/bin/python"


def test_an_environment_that_was_removed_does_not_count(tmp_path: Path) -> None:
    own = runtime("/usr", in_environment=False)
    assert local_python({"VIRTUAL_ENV": str(tmp_path / "gone")}, own) == "/usr/bin/python"
