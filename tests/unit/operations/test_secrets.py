"""What of a cluster file's programs and secrets is allowed on this machine, and where secrets come from."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.cli.watching import is_allowed
from dtctl.config.cluster import Cluster, Trainer
from dtctl.config.load import load_cluster
from dtctl.errors import ConfigError, PreflightError
from dtctl.operations.consent import Consents, LocalProgram, may_start, programs_here
from dtctl.operations.local import exposure, find_secrets, read_env_file
from dtctl.rooms.init.operation import template_names, templates_directory
from tests.fuzz import cases
from tests.impostors import directory, fifo, in_place_of_a_file, link_without_end, sparse
from tests.unit.clusters import cluster


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    file = tmp_path / "prod.env"
    file.write_text("# ours\nexport API_KEY='hunter2'\n\nOTHER=a=b\n")
    file.chmod(0o600)
    return file


def of(env_file: Path) -> Cluster:
    return replace(cluster(), trainer=Trainer(code=env_file.parent, secrets=("API_KEY",), env_file=env_file))


def test_the_file_stands_over_the_environment(env_file: Path) -> None:
    assert find_secrets(of(env_file), {"API_KEY": "old"}) == {"API_KEY": "hunter2"}
    assert read_env_file(env_file) == {"API_KEY": "hunter2", "OTHER": "a=b"}


def latin1(file: Path) -> None:
    file.write_bytes(b"API_KEY=gr\xfc\xdfe\n")


def nul(file: Path) -> None:
    file.write_bytes(b"API_KEY=a\0b\n")


def no_line(file: Path) -> None:
    file.write_text("hunter2\n")


EXCHANGES = map(in_place_of_a_file, (fifo, directory, link_without_end))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("spoil", [Path.unlink, *EXCHANGES, sparse, latin1, nul, no_line])
def test_a_file_that_cannot_be_used_is_an_error_that_quotes_nothing_of_it(
    env_file: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(env_file)
    with pytest.raises(PreflightError, match=str(env_file)) as error:
        find_secrets(of(env_file), {})
    assert "hunter2" not in f"{error.value.summary} {error.value.detail} {error.value.hint}"


def test_a_file_that_may_not_be_read_is_an_error(env_file: Path) -> None:
    if os.geteuid() == 0:
        env_file.parent.chmod(0o755)
        os.seteuid(65534)
    try:
        env_file.chmod(0) if os.geteuid() != 65534 else None
        with pytest.raises(PreflightError, match="cannot read the env_file"):
            read_env_file(env_file)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_can_read_is_warned_of(env_file: Path, mode: int) -> None:
    env_file.chmod(mode)
    exposed = exposure(of(env_file))
    assert exposed is not None
    assert f"by other users (mode 0{mode:o})" in exposed.what
    assert exposed.remedy == f"chmod 600 {env_file}"


def test_a_file_that_others_can_exchange_is_warned_of(env_file: Path) -> None:
    env_file.parent.chmod(0o777)
    exposed = exposure(of(env_file))
    assert exposed is not None
    assert exposed.remedy == f"chmod go-w {env_file.parent}"
    env_file.parent.chmod(0o1777)
    assert exposure(of(env_file)) is None


def test_a_file_of_ones_own_is_nothing_to_warn_of(env_file: Path) -> None:
    assert exposure(of(env_file)) is None
    assert exposure(cluster()) is None


@cases
@given(st.binary(max_size=200))
def test_any_file_gives_texts_or_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.env"
    file.write_bytes(content)
    try:
        values = read_env_file(file)
    except PreflightError:
        return
    assert all(name.isidentifier() and "\0" not in value for name, value in values.items())


FILE = """\
name: demo
hosts: {a: {transport: local, python: /x/python, env: {B: c}}, far: 10.0.0.9}
jobs: {worker: {hosts: a}}
trainer: {code: code, command: [python, train.py], args: {steps: 5}, dialect: none, setup: make}
dirs: {work: w}
hooks:
  one: {run: [./notify.sh]}
  two: {run: [notify-send, x]}
"""


def programs(place: Path, text: str = FILE, *, local: bool = False) -> tuple[LocalProgram, ...]:
    (place / "code").mkdir(parents=True, exist_ok=True)
    (place / "code" / "train.py").touch()
    (place / "cluster.yaml").write_text(text)
    return programs_here(load_cluster(place / "cluster.yaml", needs_files=False), local=local)


@pytest.fixture
def consents(tmp_path: Path) -> Consents:
    (tmp_path / "state").mkdir(mode=0o700)
    return Consents(tmp_path / "state")


def test_each_hook_and_job_is_allowed_by_itself(tmp_path: Path, consents: Consents) -> None:
    one, two, *others = programs(tmp_path)
    assert [one.what, two.what, *(other.what for other in others)] == ["hook one", "hook two", "setup", "worker"]
    consents.allow([one])
    assert consents.missing([one, two, *others]) == (two, *others)
    consents.allow([two, *others])
    assert consents.missing([one, two, *others]) == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/x/python", "/y/python"),
        ("B: c", "B: d"),
        ("B: c", "B: c, LD_PRELOAD: x.so"),
        ("train.py", "other.py"),
        ("steps: 5", "c: import os"),
        ("setup: make", "setup: make all"),
        ("setup: make", "setup: make, venv: ~/v"),
        ("setup: make", "setup: make, secrets: [LD_PRELOAD]"),
        ("work: w", "work: ~/.config/autostart"),
        ("code: code", "code: ."),
        ("notify-send, x", "notify-send, y"),
    ],
)
def test_a_changed_program_needs_consent_again(tmp_path: Path, consents: Consents, old: str, new: str) -> None:
    consents.allow(programs(tmp_path))
    assert consents.missing(programs(tmp_path)) == ()
    assert old in FILE
    assert consents.missing(programs(tmp_path, FILE.replace(old, new)))


CONTAINER = "environment: {container: a/b:1, engine: docker, options: [--volume=/x:/x]}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--volume=/x:/x", "--volume=/:/host"),
        ("--volume=/x:/x]", "--volume=/x:/x, --privileged]"),
        ("a/b:1", "evil/b:1"),
        ("engine: docker", "engine: podman"),
    ],
)
def test_a_container_on_this_machine_asks_again_when_its_options_change(
    tmp_path: Path, consents: Consents, old: str, new: str
) -> None:
    text = FILE.replace("setup: make", CONTAINER)
    consents.allow(programs(tmp_path, text))
    assert consents.missing(programs(tmp_path, text)) == ()
    assert old in text
    assert [one.what for one in consents.missing(programs(tmp_path, text.replace(old, new)))] == ["environment"]


@pytest.mark.parametrize("image", ["-v", "--privileged", "--volume=/:/host", "../image.tar", "a b", "a\nb"])
def test_no_image_becomes_an_option_of_the_program_that_runs_it(tmp_path: Path, image: str) -> None:
    with pytest.raises(ConfigError, match="container"):
        programs(tmp_path, FILE.replace("setup: make", f"environment: {{container: {json.dumps(image)}}}"))


def test_a_script_that_changes_asks_again_and_so_does_another_directory(tmp_path: Path, consents: Consents) -> None:
    (tmp_path / "notify.sh").write_text("one")
    consents.allow(programs(tmp_path))
    (tmp_path / "notify.sh").write_text("two")
    assert [one.what for one in consents.missing(programs(tmp_path))] == ["hook one"]
    assert len(consents.missing(programs(tmp_path / "copy"))) == 4


def test_a_script_too_large_to_read_that_changes_asks_again(tmp_path: Path, consents: Consents) -> None:
    (tmp_path / "notify.sh").write_bytes(b"#!/bin/sh\n" + b"#\n" * (9 << 20))
    consents.allow(programs(tmp_path))
    assert consents.missing(programs(tmp_path)) == ()
    (tmp_path / "notify.sh").write_bytes(b"#!/bin/sx\n" + b"#\n" * (9 << 20))
    assert [one.what for one in consents.missing(programs(tmp_path))] == ["hook one"]


def test_consent_for_a_file_does_not_apply_to_a_link_to_it(tmp_path: Path, consents: Consents) -> None:
    """Its commands run in the directory of the link."""
    consents.allow(programs(tmp_path / "own"))
    (tmp_path / "cloned").mkdir()
    (tmp_path / "cloned/cluster.yaml").symlink_to("../own/cluster.yaml")
    linked = programs_here(load_cluster(tmp_path / "cloned/cluster.yaml", needs_files=False))
    assert consents.missing(linked) == linked


def test_a_hook_changed_since_consent_is_not_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "notify.sh").write_text("one")
    Consents().allow(programs(tmp_path))
    cluster = load_cluster(tmp_path / "cluster.yaml", needs_files=False)
    one, two = cluster.hooks.values()
    assert is_allowed(cluster, one)
    (tmp_path / "notify.sh").write_text("two")
    assert not is_allowed(cluster, one)
    assert is_allowed(cluster, two)
    (tmp_path / "dtctl/allowed").chmod(0o777)
    assert not is_allowed(cluster, two)
    assert not is_allowed(None, two)


def test_a_check_starts_nothing_on_a_host_that_only_the_command_line_makes_local(tmp_path: Path) -> None:
    assert len(programs(tmp_path, FILE.replace("transport: local, ", ""))) == 2, "its hooks"
    typed = ["hosts.a.transport=local"]
    cluster = load_cluster(tmp_path / "cluster.yaml", overrides=typed, needs_files=False)
    assert not may_start(cluster, typed, local=False)


def test_programs_on_other_hosts_need_no_consent(tmp_path: Path) -> None:
    text = FILE.replace("hosts: a}", "hosts: far}").replace("transport: local, ", "").partition("hooks:")[0]
    assert programs(tmp_path, text) == ()
    assert {one.what for one in programs(tmp_path, text, local=True)} == {"setup", "worker"}


def test_a_job_that_moves_to_another_local_host_asks_nothing(tmp_path: Path, consents: Consents) -> None:
    consents.allow(programs(tmp_path))
    moved = FILE.replace("hosts: {a: ", "hosts: {b: ").replace("hosts: a}", "hosts: b}")
    assert consents.missing(programs(tmp_path, moved)) == ()


def test_consent_files_are_private(tmp_path: Path, consents: Consents) -> None:
    old = os.umask(0)
    try:
        consents.allow(programs(tmp_path))
    finally:
        os.umask(old)
    kept = list((tmp_path / "state/allowed").iterdir())
    assert len(kept) == 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}
    assert stat.S_IMODE((tmp_path / "state/allowed").stat().st_mode) == 0o700


def test_a_directory_that_others_may_write_to_allows_nothing(tmp_path: Path, consents: Consents) -> None:
    consents.allow(programs(tmp_path))
    (tmp_path / "state/allowed").chmod(0o777)
    with pytest.raises(PreflightError, match="can be written to by other users"):
        Consents(tmp_path / "state")


@pytest.mark.parametrize("name", template_names())
def test_no_template_of_ours_needs_consent(name: str) -> None:
    assert programs_here(load_cluster(templates_directory() / name / "cluster.yaml", needs_files=False)) == ()
