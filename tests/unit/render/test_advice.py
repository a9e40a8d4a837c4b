"""A log that ends with a missing module leads to the command that installs it."""

from __future__ import annotations

from dtctl.render.advice import advice

TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3\n{}\n'


def test_a_missing_module_is_named_with_its_package() -> None:
    tail = TRACEBACK.format("ModuleNotFoundError: No module named 'sklearn'")
    sentence, command = advice(tail, "gpu-1", {"sklearn": "scikit-learn"})
    assert "on gpu-1 lacks sklearn" in sentence
    assert command.startswith("dtctl exec @gpu-1 -- PYTHON -m pip install scikit-learn ")


def test_of_a_module_inside_another_the_outer_one_is_installed() -> None:
    tail = TRACEBACK.format("ModuleNotFoundError: No module named 'tensorflow.compat'")
    assert "pip install tensorflow " in advice(tail, "gpu-1", {})[1]


def test_other_failures_have_no_advice() -> None:
    assert advice(TRACEBACK.format("ValueError: no module named 'numpy' in this dictionary"), "gpu-1", {}) == ()
