"""TensorFlow's own reader and dtctl's agree on which checkpoints can be restored, good ones and damaged ones."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

from dtctl.agent.checkpoints.verifying import verify

DATA = Path(__file__).parents[1] / "agent/data/checkpoints"
KINDS = ("flip", "flip", "cut", "zeros", "longer", "gone", "none")
CASES = 150


def damaged(directory: Path, seed: int) -> Path:
    """The prefix of a copy of some checkpoint, one of whose files was damaged in some way, or none."""
    chance = random.Random(seed)
    source = chance.choice(sorted(DATA.rglob("*.index"))).with_suffix("")
    shutil.copytree(source.parent, directory)
    file = chance.choice(sorted(directory.glob(f"{source.name}.*")))
    data, kind = bytearray(file.read_bytes()), chance.choice(KINDS)
    at = chance.randrange(len(data))
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del data[at:]
    elif kind == "zeros":
        data[at : at + 16] = bytes(len(data[at : at + 16]))
    elif kind == "longer":
        data += b"more"
    file.write_bytes(data)
    if kind == "gone":
        file.unlink()
    return directory / source.name


def test_tensorflow_can_read_what_is_sound_and_nothing_else(tmp_path: Path) -> None:
    prefixes = [str(damaged(tmp_path / str(seed), seed)) for seed in range(CASES)]
    reader = Path(__file__).with_name("reader.py")
    done = subprocess.run(
        [sys.executable, reader], input="\n".join(prefixes), capture_output=True, text=True, timeout=300, check=True
    )
    told = done.stdout.splitlines()
    assert len(told) == CASES
    found = [verify(prefix).problems for prefix in prefixes]
    differing = [(seed, told[seed], found[seed]) for seed in range(CASES) if (told[seed] == "ok") == bool(found[seed])]
    assert differing == []
    assert 20 < told.count("ok") < CASES - 20
