"""The agent as bytes, what the bootstrap reads before there is one, and that it needs nothing but Python 3.8."""

from __future__ import annotations

import ast
import inspect
import io
import os
import shlex
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dtctl.agent
from dtctl.agent import bootstrap
from dtctl.agent.records.kinds import made
from dtctl.agent.records.spec import Container, Environment
from dtctl.agent.run import containers
from dtctl.transport.payload import LOADER, agent_program, once, opening, whole


@pytest.mark.parametrize(
    ("sent", "program", "rest"),
    [
        (b"3\nabc", b"abc", b""),
        (b'{"type":"status"}\n{"type":"abort"}\n3\nabc{"type":"status"}\n', b"abc", b'{"type":"status"}\n'),
        (b'{"type":"file","bytes":4}\n{"\n2{"type":"abort"}\n3\nabc', b"abc", b""),
    ],
)
def test_frames_before_the_program_are_passed_over(
    sent: bytes, program: bytes, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "say", lambda **frame: None)
    reader = io.BytesIO(sent)
    assert bootstrap.received(reader, 0) == program
    assert reader.read() == rest


@pytest.mark.parametrize("sent", [b'{"type":"status"}\n', b"", b"3\nab"])
def test_the_session_ends_when_the_controller_goes_before_the_program_has_arrived(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "say", lambda **frame: None)
    monkeypatch.setattr("os._exit", sys.exit)
    with pytest.raises(SystemExit):
        bootstrap.received(io.BytesIO(sent), 0)


def refuse(*message: str) -> None:
    pytest.fail(": ".join(message))


def program_files() -> dict[str, str]:
    """Everything of the agent, by its path on a host."""
    paths = {path: str(Path("dtctl_agent", path.relative_to(ISLAND))) for path in SOURCES}
    paths[ISLAND / "bootstrap.py"] = "__main__.py"
    return {paths[path]: path.read_text() for path in SOURCES}


def kept(directory: Path) -> Path:
    """A program, kept as a session does."""
    program = directory / agent_program().sha256
    packed = zlib.compress(agent_program().content)
    bootstrap.keep(str(program), packed, refuse)
    return program


def test_the_head_of_the_compiled_program_fits_into_one_read(tmp_path: Path) -> None:
    code = Path(bootstrap.compiled_path(str(kept(tmp_path)))).read_bytes()
    assert int.from_bytes(code[4:8], "little") < bootstrap.HEAD_BYTES / 2


def test_sources_are_those_that_the_name_of_the_program_promises(tmp_path: Path) -> None:
    program = kept(tmp_path)
    assert bootstrap.sources(str(program)) == program_files()
    source = program / "source"
    for damaged in (source.read_bytes()[:-1], zlib.compress(b"{}"), b""):
        source.write_bytes(damaged)
        assert bootstrap.sources(str(program)) == {}


def test_files_owned_or_writable_by_another_user_are_not_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"123")
    file.chmod(0o600)
    assert bootstrap.content(str(file), 2) == b"12"
    file.chmod(0o620)
    assert bootstrap.content(str(file), 2) == b""
    (tmp_path / "link").symlink_to(file)
    file.chmod(0o600)
    assert bootstrap.content(str(tmp_path / "link"), 2) == b""
    assert bootstrap.content(str(tmp_path), 2) == b""


def test_the_program_is_the_same_every_time() -> None:
    made_anew = inspect.unwrap(agent_program)
    assert made_anew() == agent_program()
    assert made_anew() is not agent_program()


def test_concurrent_threads_share_one_program() -> None:
    made: list[object] = []
    everyone = threading.Barrier(8)

    def make() -> object:
        made.append(object())
        time.sleep(0.05)  # long enough for the others to ask as well
        return made[-1]

    asked = once(make)

    def ask(_: int) -> object:
        everyone.wait()
        return asked()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == set(made)
    assert len(made) == 1


def test_the_opening_is_the_bootstrap_and_the_name_of_the_program_alone() -> None:
    stream = io.BytesIO(opening())
    assert stream.read(int(stream.readline())) == (ISLAND / "bootstrap.py").read_bytes()
    assert stream.read() == b"0 %b\n" % agent_program().sha256.encode()
    assert len(opening()) < 32_000  # one window of TCP


def test_the_whole_is_the_program() -> None:
    stream = io.BytesIO(whole())
    size = int(stream.readline())
    assert zlib.decompress(stream.read(size)) == agent_program().content
    assert stream.read() == b""


def test_the_loader_is_one_word_for_every_login_shell() -> None:
    """sh, csh and fish agree on single quotes, as long as nothing inside is a quote, a ! or a backslash."""
    assert shlex.split(LOADER)[:2] == ["python3", "-ISc"]
    code = LOADER.partition("'")[2].rstrip("'")
    assert not set(code) & set("'!\\\n")
    compile(code, "loader", "exec")


ISLAND = Path(dtctl.agent.__path__[0])
SOURCES = sorted(ISLAND.rglob("*.py"))


def name(source: Path) -> str:
    return str(source.relative_to(ISLAND).with_suffix(""))


def imported(tree: ast.AST, depth: int = 1) -> set[str]:
    """Top-level names of all imports, wherever they stand; those that stay in the agent as '.'.

    `depth` is how many dots still stay in it.
    """
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = 1 <= node.level <= depth
            names.add("." if inside else (node.module or "..").partition(".")[0])
    return names


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_a_module_imports_the_standard_library_and_its_own_package_only(source: Path) -> None:
    depth = len(source.relative_to(ISLAND).parts)
    for_mypy = {"typing_extensions"} if name(source) == "records/kinds" else set()
    assert imported(ast.parse(source.read_text()), depth) <= {*sys.stdlib_module_names, ".", *for_mypy}


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_a_module_can_be_parsed_by_the_oldest_python(source: Path) -> None:
    ast.parse(source.read_text(), feature_version=(3, 8))


def test_the_bootstrap_holds_nothing_that_an_early_python_3_cannot_read() -> None:
    tree = ast.parse((ISLAND / "bootstrap.py").read_text(), feature_version=(3, 0))
    late = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Await)
    assert [node for node in ast.walk(tree) if isinstance(node, late)] == []
    assert "__future__" not in imported(tree)
    assert [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.cause is not None] == []


INSIDE = {"TOKEN": "s3cret", "PATH": "/opt/bin", "DTCTL_KEY": "/r/attempt-1", "TF_CONFIG": '{"a": 1}'}
COMMON = "--network host --pid host --ipc host"


def words(engine: str, **inside: str) -> tuple[str, dict[str, str]]:
    box = containers.Box(
        "/",
        "/environments/k",
        made(Container, program=f"/bin/{engine}", engine=engine, image="IMAGE"),
        made(Environment, kind="container", what="x", options=["--own"]),
        ["/tmp", "/not/there"],
    )
    argv, env = box.words("name", ["python3", "t.py"], {**INSIDE, **inside}, {"HOME": "/h"}, "/tmp", ["TOKEN", "PATH"])
    return " ".join(argv), env


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_values_are_on_no_command_line_but_those_that_the_program_would_heed(engine: str) -> None:
    text, env = words(engine, HOME="/own", LD_PRELOAD="/a.so")
    assert text.startswith(f"/bin/{engine} run --rm --name name --label dtctl.environment=k ")
    assert COMMON in text
    assert " --env DTCTL_KEY=/r/attempt-1 --env HOME=/own --env LD_PRELOAD=/a.so --env PATH --env TF_CONFIG " in text
    assert text.endswith(" --env TOKEN --own --entrypoint python3 IMAGE t.py")
    assert "--volume /tmp:/tmp" in text
    assert "/not/there" not in text
    assert env == {"HOME": "/h", "TOKEN": "s3cret", "PATH": "/opt/bin", "TF_CONFIG": '{"a": 1}'}


def test_apptainer_gets_all_variables_by_its_own() -> None:
    text, env = words("apptainer")
    assert text == "/bin/apptainer exec --cleanenv --no-home --pwd /tmp --bind / --bind /tmp --own IMAGE python3 t.py"
    assert env == {"HOME": "/h", **{f"APPTAINERENV_{name}": value for name, value in INSIDE.items()}}


@pytest.mark.parametrize(
    ("driver", "engine", "gpus"),
    [
        ("/dev/nvidiactl", "podman", "--device nvidia.com/gpu=all"),
        ("/dev/nvidiactl", "docker", "--gpus all"),
        ("/dev/nvidiactl", "apptainer", "--nv"),
        ("/dev/kfd", "podman", "--device /dev/kfd --device /dev/dri"),
        ("/dev/kfd", "apptainer", "--rocm"),
    ],
)
def test_gpus_are_given_unless_the_task_has_none(
    driver: str, engine: str, gpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path == driver)
    assert f" {gpus} " in words(engine)[0]
    assert gpus not in words(engine, CUDA_VISIBLE_DEVICES="-1")[0]


@pytest.mark.parametrize(
    ("engine", "facts", "options"),
    [
        ("podman", "false crun", ""),
        ("podman", "true crun", "--userns keep-id --group-add keep-groups"),
        ("podman", "true runc", "--userns keep-id"),
        ("docker", "[name=seccomp]", "--user 7:8 --group-add 9"),
        ("docker", "[name=rootless]", ""),
        ("singularity", "", ""),
    ],
)
def test_a_trainer_is_the_user_of_the_host(
    engine: str, facts: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, Callable[[], object]] = {"getuid": lambda: 7, "getgid": lambda: 8, "getgroups": lambda: [8, 9]}
    for name, answer in answers.items():
        monkeypatch.setattr(os, name, answer)
    found = containers.found({"PROGRAM": "/p", "ENGINE": engine, "IMAGE": "i", "PULLED": "1", "OPTIONS": facts})
    assert " ".join(found["options"]) == options
    assert (found["engine"] == "apptainer") == (engine == "singularity")
