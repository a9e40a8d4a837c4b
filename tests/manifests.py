"""Whether manifests are valid for the models of their operators."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.environments import environment

PROGRAM = Path(__file__).parent / "training" / "schemas.py"


def unknown_fields(files: Sequence[Path]) -> dict[str, list[str]]:
    """Returns the fields of each document that its operator or Kubernetes does not know; fails for a refused one."""
    words = [str(environment("kubeflow")), str(PROGRAM), *map(str, files)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found
