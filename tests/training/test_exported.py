"""Exported manifests are valid for the models that Kubeflow's operators publish, and for the schemas of Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.manifests import unknown_fields

pytestmark = [pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(600)]

EXPORTED = Path(__file__).parents[1] / "unit/operations/exported"


def test_exported_manifests_have_only_fields_that_their_operators_know() -> None:
    files = [path for suffix in ("jobset", "tfjob", "trainjob") for path in sorted(EXPORTED.rglob(f"*.{suffix}"))]
    found = unknown_fields(files)
    assert len(found) >= len(files)
    assert {name: fields for name, fields in found.items() if fields} == {}
