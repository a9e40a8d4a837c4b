"""From what an environment is created: files of the code that the cluster file names, and wheels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.bundle import Bundle
from dtctl.config.cluster import Environment
from dtctl.config.load import check_cluster
from dtctl.errors import ConfigError, PreflightError
from dtctl.operations.consent import programs_here
from dtctl.operations.environments import environment_files, environment_wheels
from dtctl.operations.sending import START, scan_code, scan_wheels, sendings
from dtctl.operations.up.launch import make_plan
from dtctl.operations.up.review import review
from dtctl.plan.spec import NO_CONTENT, EnvironmentContent, digest, environment_of
from tests import impostors
from tests.wheels import make_wheel

TEXT = """\
name: demo
hosts: {a: {ssh: 10.0.0.1, python: /opt/py/bin/python}, b: {transport: local, address: 10.0.0.2}}
jobs: {worker: {hosts: [a, b]}}
trainer:
  command: [python, train.py]
  env: {PIP_INDEX_URL: "http://index", OTHER: x}
  environment: {requirements: requirements.txt}
"""


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "train.py").touch()
    (tmp_path / "requirements.txt").write_text("numpy\n")


def files_of(environment: str = "{requirements: requirements.txt}") -> dict[str, str]:
    text = TEXT.replace("{requirements: requirements.txt}", environment)
    text = text.replace("python: /opt/py/bin/python", "gpus: 0") if "conda" in environment else text
    Path("cluster.yaml").write_text(text)
    return dict(environment_files(check_cluster(Path("cluster.yaml")).cluster))


def test_files_that_are_named_count_by_their_content_and_no_other_file_does() -> None:
    """pip alone says what a line means; on the hosts it finds the named files only."""
    for name, text in {"lib/base.txt": "-r ../requirements.txt\n", "own-1.0-py3-none-any.whl": "zip"}.items():
        Path(name).write_text(text)
    Path("requirements.txt").write_text("-r lib/base.txt\n-r gone.txt\n-e .\n./own-1.0-py3-none-any.whl\n")
    names = ["requirements.txt", "lib/base.txt", "own-1.0-py3-none-any.whl"]
    found = files_of("{requirements: ./requirements.txt, files: [lib/base.txt, own-1.0-py3-none-any.whl]}")
    assert found == {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names}
    assert list(files_of()) == ["requirements.txt"]


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ("{uv: true}", ["pyproject.toml", "uv.lock"]),
        ("{uv: lib}", ["lib/pyproject.toml", "lib/uv.lock"]),
        ("{uv: true, files: .python-version}", ["pyproject.toml", "uv.lock", ".python-version"]),
        ("{conda: environment.yml}", ["environment.yml"]),
        ("{conda: environment.yml, files: [pip.txt]}", ["environment.yml", "pip.txt"]),
        ("{conda: base}", []),
        ("{modules: python/3.11 cuda}", []),
        ("{container: python:3.11}", []),
        ("{container: lib/image.tar}", ["lib/image.tar"]),
        ("{container: ~/image.sif}", []),
    ],
)
def test_each_kind_of_environment_has_its_own_files(environment: str, names: list[str]) -> None:
    for name in names:
        Path(name).touch()
    assert list(files_of(environment)) == names


@pytest.mark.parametrize(
    ("name", "make", "problem"),
    [
        ("requirements.txt", Path.unlink, "requirements.txt cannot be read in the code"),
        ("base.txt", impostors.fifo, "base.txt cannot be read in the code"),
        ("base.txt", Path.mkdir, "base.txt cannot be read in the code"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(name: str, make: Callable[[Path], None], problem: str) -> None:
    make(Path(name))
    with pytest.raises(PreflightError) as refused:
        files_of(f"{{requirements: requirements.txt, files: [{name}]}}")
    assert refused.value.summary.startswith(problem)


WHEELS = "{requirements: requirements.txt, wheels: wheels}"


def wheels_of(environment: str = WHEELS) -> Bundle | None:
    Path("cluster.yaml").write_text(TEXT.replace("{requirements: requirements.txt}", environment))
    return environment_wheels(check_cluster(Path("cluster.yaml")).cluster)


def test_wheels_are_known_by_their_content_whoever_may_read_them() -> None:
    make_wheel(Path("wheels"), "probe").chmod(0o600)
    Path("wheels/.gitignore").write_text("*\n")
    one = wheels_of()
    assert one is not None
    assert [file.path for file in one.manifest.files] == ["probe-1.0-py3-none-any.whl"]
    Path("wheels/probe-1.0-py3-none-any.whl").chmod(0o644)
    again = wheels_of()
    make_wheel(Path("wheels"), "probe", text="# changed")
    changed = wheels_of()
    assert again is not None
    assert changed is not None
    assert one.id == again.id != changed.id
    assert wheels_of("{requirements: requirements.txt}") is None


@pytest.mark.parametrize(
    ("name", "make", "problem", "hint"),
    [
        (".", lambda path: None, "/wheels holds no wheel", "pip download --only-binary=:all: --dest"),
        (".hidden.whl", Path.touch, "/wheels holds no wheel", "pip download --only-binary=:all: --dest"),
        ("built-1.0.tar.gz", Path.touch, "/wheels/built-1.0.tar.gz is not a wheel", "pip wheel --no-deps --wheel-dir"),
        ("built-1.0.zip", Path.touch, "/wheels/built-1.0.zip is not a wheel", "pip wheel --no-deps --wheel-dir"),
        ("a.whl", lambda path: path.symlink_to("/etc/passwd"), "/wheels/a.whl is a link, expected a wheel", "NAME.whl"),
        ("cp311", Path.mkdir, "/wheels/cp311 is a directory, expected a wheel", "NAME.whl"),
        ("a.whl", impostors.fifo, "/wheels/a.whl is a FIFO and cannot be sent", "remove it"),
    ],
)
def test_a_directory_that_holds_anything_but_wheels_is_refused(
    name: str, make: Callable[[Path], None], problem: str, hint: str
) -> None:
    Path("wheels").mkdir()
    make(Path("wheels") / name)
    with pytest.raises(PreflightError) as refused:
        wheels_of()
    assert refused.value.summary.endswith(problem)
    assert hint in refused.value.hint


def test_a_wheel_that_looks_like_a_secret_is_not_left_out_silently() -> None:
    make_wheel(Path("wheels"), "probe")
    make_wheel(Path("wheels"), "vault_pass")
    with pytest.raises(PreflightError) as refused:
        wheels_of()
    assert refused.value.summary.endswith("/wheels/vault_pass-1.0-py3-none-any.whl cannot be sent")
    assert refused.value.detail == "it usually holds secrets: vault_pass*"


def test_unsendable_directory_of_wheels_is_reported_before_the_start_with_its_line() -> None:
    Path("wheels").mkdir()
    Path("cluster.yaml").write_text(TEXT.replace("{requirements: requirements.txt}", WHEELS))
    with pytest.raises(ConfigError) as refused:
        review(check_cluster(Path("cluster.yaml")), {})
    (problem,) = refused.value.problems
    assert (problem.place.line, problem.summary) == (
        7,
        f"trainer.environment.wheels: {Path.cwd()}/wheels holds no wheel",
    )


@pytest.mark.parametrize(
    ("wheels", "problem"),
    [("~", "which is a home directory"), ("..", "which is above the home directory"), ("~/.ssh", "in .ssh/, where")],
)
def test_wheels_are_not_taken_from_where_no_code_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wheels: str, problem: str
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    wheels = str(tmp_path) if wheels == ".." else wheels
    with pytest.raises(ConfigError) as refused:
        wheels_of(f'{{requirements: requirements.txt, wheels: "{wheels}"}}')
    assert problem in str(refused.value)


def test_wheels_from_outside_of_the_files_directory_need_consent(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for place, keys in ((tmp_path, []), (tmp_path_factory.mktemp("other"), ["trainer.environment.wheels"])):
        wheels = make_wheel(place / "wheels", "probe").parent
        assert wheels_of(WHEELS.replace("wheels: wheels", f"wheels: {wheels}")) is not None
        cluster = check_cluster(Path("cluster.yaml")).cluster
        made = scan_wheels(cluster)
        assert made is not None
        assert (made.sending is not None) == bool(keys)
        assert [one.key for one in sendings(cluster, START, {})] == keys


def test_wheels_are_no_part_of_the_code_and_other_wheels_make_another_run() -> None:
    make_wheel(Path("wheels"), "probe")
    Path("cluster.yaml").write_text(TEXT.replace("{requirements: requirements.txt}", WHEELS))
    cluster = check_cluster(Path("cluster.yaml")).cluster
    names = [file.path for file in scan_code(cluster).manifest.files]
    assert "requirements.txt" in names
    assert not [name for name in names if name.startswith("wheels")]
    assert len({digest(cluster, "code", wheels) for wheels in ("1", "2", None)}) == 3


def test_host_gets_its_interpreter_and_the_settings_of_its_maker() -> None:
    files = files_of("{requirements: requirements.txt, python: python3.11}")
    plan = make_plan(check_cluster(Path("cluster.yaml")).cluster, lambda reach: "a")
    assert [task.argv[0] for task in plan.tasks] == ["\0PYTHON"] * 2
    for task, python in zip(plan.tasks, ("/opt/py/bin/python", "python3.11"), strict=True):
        assert environment_of(plan, task, EnvironmentContent(files, "a" * 64)) == {
            "kind": "requirements",
            "what": "requirements.txt",
            "python": python,
            "engine": None,
            "options": [],
            "mounts": [],
            "files": files,
            "env": {"PIP_INDEX_URL": "http://index"},
            "wheels": "a" * 64,
            "directory": None,
            "container": None,
        }


def test_a_container_gets_the_directories_of_its_host() -> None:
    Path("image.sif").touch()
    files_of("{container: image.sif, options: --nv}")
    text = Path("cluster.yaml").read_text()
    Path("cluster.yaml").write_text(f"{text}dirs: {{data: /data, output: gs://bucket/run, work: ~/w}}\n")
    plan = make_plan(check_cluster(Path("cluster.yaml")).cluster, lambda reach: "a")
    said = environment_of(plan, plan.tasks[0], NO_CONTENT)
    assert said is not None
    assert (said["mounts"], said["engine"], said["options"]) == (["\0HOME/w", "/data"], "apptainer", ["--nv"])


def test_consent_for_installed_packages_depends_on_their_content() -> None:
    def digest(environment: str = "{requirements: requirements.txt}") -> str:
        files_of(environment)
        programs = programs_here(check_cluster(Path("cluster.yaml")).cluster)
        (own,) = [one for one in programs if one.what == "environment"]
        assert own.argv[:2] == ("pip", "install")
        assert own.argv[-2:] == ("-r", "requirements.txt")
        assert own.hosts == ("b",)
        return own.digest

    digests = [digest()]
    Path("requirements.txt").write_text("other\n")
    digests.append(digest())
    make_wheel(Path("wheels"), "probe")
    for text in ("", "# changed"):
        make_wheel(Path("wheels"), "probe", text=text)
        digests.append(digest(WHEELS))
    assert len({*digests}) == 4


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (Environment(uv="."), "uv sync --frozen"),
        (Environment(uv="lib"), "uv sync --frozen --project lib"),
        (Environment(uv=".", wheels="w"), "uv sync --frozen --no-index --find-links w"),
        (Environment(requirements="r.txt", wheels="w"), "pip install --no-index --find-links w -r r.txt"),
        (Environment(conda="e.yaml"), "conda env create --file e.yaml"),
        (Environment(conda="base"), "conda activate base"),
        (Environment(modules=("python/3.11", "cuda")), "module load python/3.11 cuda"),
        (Environment(container="tf:2", options=("-v", "/a:/a")), "podman run -v /a:/a tf:2"),
        (Environment(container="/a.sif", engine="apptainer"), "apptainer exec /a.sif"),
    ],
)
def test_an_environment_is_shown_as_its_command(said: Environment, command: str) -> None:
    assert " ".join(said.command) == command
