"""What templates print: a loss that is small is not shown as none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
FORMATS = {
    f"{path.relative_to(TEMPLATES)}: {found[0]}": found[1]
    for path in sorted(TEMPLATES.rglob("*.py"))
    for found in re.finditer(r"loss \{[^{}]*:([^{}]+)\}", path.read_text())
}


def test_most_templates_print_a_loss() -> None:
    assert len(FORMATS) > 8


@pytest.mark.parametrize("of", FORMATS)
def test_a_small_loss_keeps_its_digits(of: str) -> None:
    assert float(format(2.6e-08, FORMATS[of])) == 2.6e-08
    assert format(2.3025851, FORMATS[of]) == "2.303"
