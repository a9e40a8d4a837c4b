"""What a program needs is read from its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.operations.checks.programs import broken_line, program_of


def needs(directory: Path, *words: str, **files: str) -> tuple[str, ...] | None:
    for name, text in files.items():
        file = directory / name.replace("__slash__", "/").replace("_py", ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    program = program_of(["python", *words], directory)
    return None if program is None else program.modules


def test_modules_at_the_top_are_needed(tmp_path: Path) -> None:
    text = "import os\nimport numpy as np\nfrom tensorflow.compat import v1\nfrom . import near\n"
    assert needs(tmp_path, "train.py", train_py=text) == ("numpy", "os", "tensorflow")


def test_modules_of_its_own_are_followed(tmp_path: Path) -> None:
    files = {"train_py": "import data\nfrom nets.big import net\n", "data_py": "import numpy\n"}
    more = {"nets__slash____init___py": "import keras\n", "nets__slash__big_py": "import torch\nimport data\n"}
    assert needs(tmp_path, "train.py", **files, **more) == ("keras", "numpy", "torch")


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import horovod\nexcept ImportError:\n    pass\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import horovod\n",
        "def late():\n    import horovod\n",
        "try:\n    import horovod\nexcept ImportError:\n    install()\nimport horovod\n",
    ],
)
def test_what_may_be_absent_is_not_needed(tmp_path: Path, text: str) -> None:
    assert "horovod" not in (needs(tmp_path, "train.py", train_py=text) or ())


def test_a_directory_beside_the_program_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    assert needs(tmp_path, "train.py", train_py="from models import compiled\n") == ()


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (("-m", "pkg.train"), {"pkg__slash__train_py": "import numpy\n"}),
        (("-u", "train.py"), {"train_py": "import numpy\n"}),
        (("src/train.py",), {"src__slash__train_py": "import near\nimport numpy\n", "src__slash__near_py": ""}),
    ],
)
def test_the_program_is_found_as_python_finds_it(tmp_path: Path, words: tuple[str, ...], files: dict[str, str]) -> None:
    assert needs(tmp_path, *words, **files) == ("numpy",)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("train.py",), "import sys\nsys.path.append('/elsewhere')\nimport strange\n"),
        (("train.py",), "import this, if you can\n"),
        (("absent.py",), "import numpy\n"),
        (("-c", "import numpy"), ""),
        (("-I", "train.py"), "import numpy\n"),
        (("-m", "elsewhere"), ""),
        (("/elsewhere/train.py",), ""),
        ((), ""),
    ],
)
def test_what_its_text_does_not_tell_is_not_guessed(tmp_path: Path, words: tuple[str, ...], text: str) -> None:
    assert needs(tmp_path, *words, train_py=text) is None


def test_modules_have_the_place_of_their_first_import(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import near\n")
    (tmp_path / "near.py").write_text("\n\nimport absent\n")
    program = program_of(["python", "train.py"], tmp_path)
    assert program is not None
    assert program.places == {"absent": "near.py:3"}


def test_modules_of_the_code_on_the_path_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mine.py").touch()
    (tmp_path / "src" / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "train.py").write_text("import mine\nimport fast\nimport absent\n")
    program = program_of(["python", "train.py"], tmp_path, [tmp_path / "src"])
    assert program is not None
    assert program.modules == ("absent",)


def test_a_program_that_makes_modules_itself_is_not_judged(tmp_path: Path) -> None:
    assert needs(tmp_path, "train.py", train_py="import sys\nsys.modules['x'] = 1\nimport x\n") is None


def test_a_syntax_error_has_its_line_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')\n\nif True\n    pass\n")
    assert broken_line(["python", "-u", "train.py"], tmp_path) == ("train.py", 3, "expected ':'")
    assert not (tmp_path / "ran").exists()
