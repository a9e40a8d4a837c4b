"""The reference, the JSON Schema and the example are made of the same models as the loader, and agree with it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dtctl.config.document import Scalar
from dtctl.config.load import load_cluster
from dtctl.config.reference import json_schema, markdown
from dtctl.config.sections import SECTIONS
from dtctl.config.yaml12 import parse
from tests.unit.config.mistakes import GOOD, MISTAKES, swap, top, trainer

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = (ROOT / "cluster.yaml.example").read_text()
VALIDATOR: Any = Draft202012Validator(json_schema())
EVERY_KEY = sorted({key for section in SECTIONS for key in section.known_keys()})


def plain(data: Any) -> Any:
    """As an editor's YAML reader gives it to the schema."""
    if isinstance(data, dict):
        return {key: plain(value) for key, value in data.items()}
    if isinstance(data, list):
        return [plain(value) for value in data]
    return data.value if isinstance(data, Scalar) else data


def schema_accepts(text: str) -> bool:
    return bool(VALIDATOR.is_valid(plain(parse(text, "c.yaml").data)))


def test_the_reference_in_docs_is_in_step_with_the_models() -> None:
    # word by word: docs/generate.py fills the lines
    assert (ROOT / "docs/cluster-yaml.md").read_text().split() == markdown().split()


def test_the_smallest_file_of_the_reference_loads(tmp_path: Path) -> None:
    text = re.findall(r"```yaml\n(.*?)```", markdown(), re.DOTALL)[0]
    (tmp_path / "cluster.yaml").write_text(text)
    cluster = load_cluster(tmp_path / "cluster.yaml")
    assert {name: job.ports for name, job in cluster.jobs.items()} == {"ps": (2222,), "worker": (2223, 2222)}


@pytest.mark.parametrize("key", EVERY_KEY)
def test_the_example_shows_and_explains_every_key(key: str) -> None:
    lines = [line for line in EXAMPLE.splitlines() if re.search(rf"\b{key}:", line)]
    assert lines, f"{key} is not in cluster.yaml.example"
    assert any("#" in line for line in lines), f"no line with {key} has a comment"


def test_the_example_loads_with_its_commented_keys(tmp_path: Path) -> None:
    text = re.sub(r"^(\s*)# (env_file:)", r"\1\2", EXAMPLE, flags=re.MULTILINE)
    (tmp_path / "cluster.yaml").write_text(text)
    (tmp_path / ".env").touch()
    assert load_cluster(tmp_path / "cluster.yaml").trainer.env_file == tmp_path.resolve() / ".env"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        EXAMPLE,
        swap("10.0.0.10", ""),
        swap("10.0.0.10", "{ssh: {target: x, port: 22, user: }}"),
        swap("10.0.0.10", "{address: 'fe80::1', transport: local, env: {A: 1, B: true, C: x}}"),
        swap("  gpu-[1-4]:", '  "gpu-[1-2],gpu-[3,4]":'),
        swap("hosts: ps-a", 'hosts: [ps-a, "gpu-[1,3]"], tasks_per_host: 2, port: 1, gpus_per_task: 0'),
        swap("[python, train.py]", "python train.py"),
        swap("[python, train.py]", "[run, 1, 1.5, true]"),
        top("grace: 90"),
        top("grace: 1.5h"),
        top("recovery: {backoff: 500ms..2m, reset_after: 10, max_restarts: 0}"),
        top("recovery: {backoff: 5}"),
        top("ssh: {host_keys: accept-new, connect_timeout: 0.5}"),
        top("ssh:"),
        top("dirs: {data: ~/x, work: }"),
        top("success: all-workers"),
        top(
            "strategy: in-graph\nrecovery: {mode: gang, stall: off, host_timeout: never, retry: [], permanent: [1, 2]}"
        ),
        top("recovery: {stall: 90, host_timeout: 5m, reboot: never, allow_scratch: true, max_run_restarts: 0}"),
        top("recovery: {stall: auto, mode: never}"),
        top(
            "fail_fast: false\nstart_timeout: 1h\nactive_deadline: none\nsettle: 0\nttl: 7d\nkeep: 0\ntarget_step: 100"
        ),
        top("active_deadline: 12h\nsettle: auto\nttl: none\ncoordinator: {port: 3221}"),
        swap("hosts: ps-a", "hosts: ps-a, depends_on: []"),
        swap('"gpu-[1-4]"}\n', '"gpu-[1-3]", depends_on: ps}\nspares: [gpu-4]\n'),
        trainer("args: {a: 1, b: true, c: null, d: [1, x, true], e: 1.5, f: x}"),
        trainer("args: [--a, 1, true]"),
        trainer("args:"),
        trainer("template: '{task}'"),
        trainer("template: ['{task}', 1]"),
        trainer("python: 3.10"),
        trainer("secrets: [A]\n  keep_proxy: true"),
    ],
)
def test_the_schema_accepts_what_the_loader_accepts(text: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    load_cluster(tmp_path / "cluster.yaml")
    assert schema_accepts(text)


ONLY_THE_LOADER_CAN_TELL = "second time|key must be|NUL|more than 0|is 022|'60s|.inf|2.0|command is"


@pytest.mark.parametrize(
    "text",
    [
        mistake.text
        for mistake in MISTAKES
        if mistake.group in ("keys", "kinds")
        and not re.search(ONLY_THE_LOADER_CAN_TELL, mistake.messages.split("\n")[0])
    ],
)
def test_the_schema_refuses_wrong_keys_and_wrong_kinds(text: str) -> None:
    assert not schema_accepts(text)


def test_the_schema_has_the_required_keys() -> None:
    assert json_schema()["required"] == ["name", "hosts", "jobs"]
    assert not schema_accepts("name: x\n")


def keys_of_the_schema() -> list[tuple[str, Any]]:
    """Each with its own schema."""
    schema = json_schema()
    mappings = [
        schema,
        *(one for definition in schema["$defs"].values() for one in definition.get("anyOf", [definition])),
    ]
    return [key for mapping in mappings for key in mapping.get("properties", {}).items()]


def test_every_key_of_the_schema_is_described() -> None:
    schema = json_schema()
    assert sorted({key for key, body in keys_of_the_schema() if body["description"]}) == EVERY_KEY
    VALIDATOR.check_schema(schema)
    assert schema["$schema"] == VALIDATOR.META_SCHEMA["$id"]


def test_every_example_of_the_schema_is_valid() -> None:
    examples = [(body, example) for _, body in keys_of_the_schema() for example in body.get("examples", [])]
    assert len(examples) > 20
    assert [example for body, example in examples if not VALIDATOR.evolve(schema=body).is_valid(example)] == []


def test_importing_the_package_imports_neither_yaml_nor_pydantic() -> None:
    script = "import sys, dtctl.config; sys.exit(bool({'yaml', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
