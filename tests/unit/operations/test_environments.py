"""What an environment is made of: files of the code and those that they name, before anything is sent."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dtctl.config.cluster import Environment
from dtctl.config.load import check_cluster
from dtctl.errors import PreflightError
from dtctl.operations.consent import programs_here
from dtctl.operations.environments import environment_files
from dtctl.operations.up.launch import make_plan
from dtctl.plan.spec import environment_of

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


def test_a_file_counts_with_all_that_it_names_and_by_its_content() -> None:
    Path("lib/base.txt").write_text("-r ../requirements.txt  # a circle\nsix\n")
    Path("lib/pins.txt").write_text("six==1.0\n")
    Path("lib/own-1.0-py3-none-any.whl").write_bytes(b"zip")
    Path("lib/links").mkdir()
    Path("lib/links/its-2.tar.gz").write_bytes(b"tar")
    Path("own.tar.gz").write_bytes(b"tar")
    text = "numpy \\\n  --hash=sha256:00\n#-e .\n-rlib/base.txt\n--constraint=lib/pins.txt\n--find-links lib/links\n"
    Path("requirements.txt").write_text(text + "./lib/own-1.0-py3-none-any.whl\nown.tar.gz\n")
    names = ["requirements.txt", "lib/base.txt", "lib/pins.txt", "lib/links/its-2.tar.gz"]
    names += ["lib/own-1.0-py3-none-any.whl", "own.tar.gz"]
    assert files_of() == {name: hashlib.sha256(Path(name).read_bytes()).hexdigest() for name in names}


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ("{uv: true}", ["pyproject.toml", "uv.lock"]),
        ("{uv: lib}", ["lib/pyproject.toml", "lib/uv.lock"]),
        ("{conda: environment.yml}", ["environment.yml"]),
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
    ("line", "problem"),
    [
        ("-e .", "requirements.txt:2: -e . installs from the code directory"),
        ("--editable=lib", "requirements.txt:2: --editable=lib installs from the code directory"),
        ("./lib", "requirements.txt:2: lib is a directory of the code"),
        ("lib/", "requirements.txt:2: lib is a directory of the code"),
        ("own @ file:lib", "requirements.txt:2: own @ file:lib is a URL"),
        ("-r ../x.txt", "requirements.txt:2: ../x.txt lies outside of the code directory"),
        ("-c /etc/pins.txt", "requirements.txt:2: /etc/pins.txt lies outside of the code directory"),
        ("-r https://example.com/x.txt", "requirements.txt:2: https://example.com/x.txt is elsewhere"),
        ("-r gone.txt", "gone.txt cannot be read in the code"),
    ],
)
def test_requirement_without_fixed_content_is_refused(line: str, problem: str) -> None:
    Path("requirements.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(PreflightError) as refused:
        files_of()
    assert refused.value.summary.startswith(problem)


LOCK = """\
[manifest]
members = [
    "app",
    "member",
]

[[package]]
name = "app"
version = "0.1"
source = { editable = "." }

[[package]]
name = "member"
source = { editable = "packages/member" }
"""


def test_a_lock_may_name_its_own_project_and_no_other_directory() -> None:
    Path("pyproject.toml").touch()
    Path("uv.lock").write_text(LOCK)
    assert list(files_of("{uv: true}")) == ["pyproject.toml", "uv.lock"]
    Path("uv.lock").write_text(
        f'{LOCK}\n[[package]]\nname = "near"\nversion = "1"\nsource = {{ directory = "../near" }}\n'
    )
    with pytest.raises(PreflightError) as refused:
        files_of("{uv: true}")
    assert refused.value.summary == "uv.lock: near is the directory ../near, which changes without its name"


def test_host_gets_its_interpreter_and_the_settings_of_its_maker() -> None:
    files = files_of("{requirements: requirements.txt, python: python3.11}")
    plan = make_plan(check_cluster(Path("cluster.yaml")).cluster, lambda reach: "a")
    assert [task.argv[0] for task in plan.tasks] == ["\0PYTHON"] * 2
    for task, python in zip(plan.tasks, ("/opt/py/bin/python", "python3.11"), strict=True):
        assert environment_of(plan, task, files) == {
            "kind": "requirements",
            "what": "requirements.txt",
            "python": python,
            "engine": None,
            "options": [],
            "mounts": [],
            "files": files,
            "env": {"PIP_INDEX_URL": "http://index"},
            "wheels": None,
            "directory": None,
            "container": None,
        }


def test_a_container_gets_the_directories_of_its_host() -> None:
    Path("image.sif").touch()
    files_of("{container: image.sif, options: --nv}")
    text = Path("cluster.yaml").read_text()
    Path("cluster.yaml").write_text(f"{text}dirs: {{data: /data, output: gs://bucket/run, work: ~/w}}\n")
    plan = make_plan(check_cluster(Path("cluster.yaml")).cluster, lambda reach: "a")
    said = environment_of(plan, plan.tasks[0], {})
    assert said is not None
    assert (said["mounts"], said["engine"], said["options"]) == (["\0HOME/w", "/data"], "apptainer", ["--nv"])


def test_consent_for_installed_packages_depends_on_their_content() -> None:
    def digest() -> str:
        files_of()
        programs = programs_here(check_cluster(Path("cluster.yaml")).cluster)
        (own,) = [one for one in programs if one.what == "environment"]
        assert own.argv == ("pip", "install", "-r", "requirements.txt")
        assert own.hosts == ("b",)
        return own.digest

    before = digest()
    Path("requirements.txt").write_text("other\n")
    assert digest() != before


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (Environment(uv="."), "uv sync --frozen"),
        (Environment(uv="lib"), "uv sync --frozen --project lib"),
        (Environment(conda="e.yaml"), "conda env create --file e.yaml"),
        (Environment(conda="base"), "conda activate base"),
        (Environment(modules=("python/3.11", "cuda")), "module load python/3.11 cuda"),
        (Environment(container="tf:2", options=("-v", "/a:/a")), "podman run -v /a:/a tf:2"),
        (Environment(container="/a.sif", engine="apptainer"), "apptainer exec /a.sif"),
    ],
)
def test_an_environment_is_shown_as_its_command(said: Environment, command: str) -> None:
    assert " ".join(said.command) == command
