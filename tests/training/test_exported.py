"""Exported manifests are valid for the models that Kubeflow's operators publish, and for the schemas of Kubernetes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.environments import environment

pytestmark = [pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(600)]

EXPORTED = Path(__file__).parents[1] / "unit/operations/exported"


def test_exported_manifests_have_only_fields_that_their_operators_know() -> None:
    files = [str(path) for suffix in ("jobset", "tfjob", "trainjob") for path in sorted(EXPORTED.rglob(f"*.{suffix}"))]
    program = str(Path(__file__).with_name("schemas.py"))
    done = subprocess.run(
        [str(environment("kubeflow")), program, *files], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) >= len(files)
    assert {name: fields for name, fields in found.items() if fields} == {}
