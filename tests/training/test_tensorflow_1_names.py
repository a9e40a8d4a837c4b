"""The names by which a program of TensorFlow 1 is recognised, against the TensorFlow that is installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from dtctl.rooms.check.tensorflow1 import GONE, MOVED

pytestmark = [
    pytest.mark.training,
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs tensorflow"),
]

WHERE = """
import json, operator, sys
import tensorflow as new, tensorflow.compat.v1 as old

def has(module, name):
    try:
        operator.attrgetter(name)(module)
    except AttributeError:
        return False
    return True

print(json.dumps({name: [has(new, name), has(old, name)] for name in json.loads(sys.argv[1])}))
"""


def test_names_of_tensorflow_1_are_where_the_remedies_say() -> None:
    asked = [sys.executable, "-c", WHERE, json.dumps([*MOVED, *GONE])]
    reported = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=240).stdout
    where = {name: tuple(found) for name, found in json.loads(reported).items()}
    assert where == {**dict.fromkeys(MOVED, (False, True)), **dict.fromkeys(GONE, (False, False))}
