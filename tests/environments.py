"""Virtual environments of the frameworks that cannot stand beside this one's TensorFlow, each made once and kept.

They lie in ~/.cache/dtctl/environments, or in $DTCTL_TEST_ENVIRONMENTS. `python -m tests.environments` makes all of
them, or those that it is given, and prints where their Pythons are.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.hosts import private_network


@dataclass(frozen=True)
class Recipe:
    module: str
    """What is imported once, before the environment counts as made."""
    pythons: tuple[str, ...]
    """Versions that will do, the best one first."""
    packages: tuple[str, ...]
    rather: tuple[str, ...] = ()
    """In place of the first package, if it is to be had."""

    def attempts(self) -> list[tuple[str, ...]]:
        """What pip is to install, until it can."""
        return [(first, *self.packages[1:]) for first in (*self.rather, self.packages[0])]


RECIPES = {
    "tensorflow-2.15": Recipe(
        "tensorflow", ("3.11", "3.10", "3.9"), ("tensorflow==2.15.1", "numpy==1.26.4", "scikit-learn==1.5.2")
    ),
    "mxnet-1.9": Recipe(
        "mxnet", ("3.11", "3.10", "3.9"), ("mxnet==1.9.1", "numpy==1.23.5", "scipy==1.11.4", "scikit-learn==1.2.2")
    ),
    "uv": Recipe("uv", ("3.11", "3.12", "3.13", "3.10"), ("uv>=0.5",)),
    "boosting": Recipe(
        "xgboost, lightgbm", ("3.11", "3.12", "3.10"), ("xgboost-cpu==3.2.0", "lightgbm==4.7.0", "scikit-learn==1.9.1")
    ),
    "kubeflow": Recipe(
        "kubeflow.training, kubeflow_trainer_api.models, kubernetes_validate",
        ("3.11", "3.12", "3.13", "3.10"),
        (
            "kubeflow-training==1.9.4",
            "kubeflow-trainer-api==2.2.0",
            "kubernetes-validate==1.37.0",
        ),  # 2.3.0 lacks a module
    ),
    "inventories": Recipe(
        "ansible, ClusterShell", ("3.11", "3.12", "3.13"), ("ansible-core==2.19.14", "ClusterShell==1.10.1")
    ),
    "ray": Recipe("ray", ("3.11", "3.12", "3.10"), ("ray==2.60.0",)),
    "jax": Recipe("jax", ("3.11", "3.12", "3.13"), ("jax==0.10.2", "orbax-checkpoint==0.12.8")),
    "torch": Recipe(
        "torch",
        ("3.11", "3.12", "3.13", "3.10"),
        ("torch==2.13.0", "numpy==2.2.6", "scikit-learn==1.7.2"),
        rather=("torch==2.13.0+cpu",),  # without gigabytes of CUDA; not on PyPI
    ),
    "deepspeed": Recipe(
        "deepspeed",
        ("3.11", "3.12", "3.13", "3.10"),
        ("torch==2.13.0", "numpy==2.2.6", "setuptools==84.2.1", "ninja==1.13.2", "deepspeed==0.19.8"),
        rather=("torch==2.13.0+cpu",),
    ),
    "torch-libraries": Recipe(
        "lightning, transformers, accelerate, safetensors",
        ("3.11", "3.12", "3.13", "3.10"),
        (
            *("torch==2.13.0", "numpy==2.2.6", "safetensors==0.8.0", "accelerate==1.15.0", "transformers==5.24.0"),
            "lightning==2.6.6",
        ),
        rather=("torch==2.13.0+cpu",),
    ),
}

COMPLETE = "complete"
"""The mark of an environment that was made to its end. One without it is made anew."""


class Unfit(Exception):
    """No Python here can have this environment."""


def environment(name: str) -> Path:
    """The python of an environment, which may have to be made first. Skips the test where it cannot be."""
    import pytest  # here, as environments are made while pytest itself is installed

    try:
        return made(name)
    except Unfit as unfit:
        pytest.skip(str(unfit))


def made(name: str) -> Path:
    """Does the same as `environment` outside tests. Raises Unfit."""
    return build(name, RECIPES[name])


def build(name: str, recipe: Recipe) -> Path:
    """The python of the environment of this recipe, which may have to be made first. Raises Unfit."""
    found = find_python(recipe.pythons)
    if found is None:
        raise Unfit(f"{name} needs Python {' or '.join(recipe.pythons)}")
    python, version = found
    digest = hashlib.sha256("\n".join((version, *recipe.rather, *recipe.packages)).encode()).hexdigest()
    directory = root() / f"{name}-{digest[:12]}"
    with alone(directory.with_name(f"{directory.name}.lock")), private_network.the_machines():
        if not (directory / COMPLETE).exists():
            make(directory, python, recipe)
    return directory / "bin" / "python"


def root() -> Path:
    return Path(os.environ.get("DTCTL_TEST_ENVIRONMENTS") or "~/.cache/dtctl/environments").expanduser()


def find_python(versions: Sequence[str]) -> tuple[str, str] | None:
    """A command, and its full version. By running it: pyenv has names with nothing behind them."""
    for version in versions:
        for command in (f"python{version}", sys.executable, "python3"):
            full = _version(command)
            if full.rpartition(".")[0] == version:
                return command, full
    return None


def _version(command: str) -> str:
    if shutil.which(command) is None:
        return ""
    tell = "import platform; print(platform.python_version())"
    return subprocess.run([command, "-c", tell], capture_output=True, text=True, check=False).stdout.strip()


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One at a time: of those who need the same environment the first makes it, and the others wait."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make(directory: Path, python: str, recipe: Recipe) -> None:
    """Where it will stay, since an environment holds its own path."""
    if directory.exists():
        shutil.rmtree(directory)
    print(f"making {directory}", file=sys.stderr, flush=True)
    run([python, "-m", "venv", str(directory)])
    own = str(directory / "bin" / "python")
    *first, last = recipe.attempts()
    if not any(install(own, packages, check=False) for packages in first):
        install(own, last)
    run([own, "-c", f"import {recipe.module}"])
    (directory / COMPLETE).touch()


def install(python: str, packages: Sequence[str], check: bool = True) -> bool:
    return run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check)


def run(command: Sequence[str], check: bool = True) -> bool:
    """Whether it succeeded; raises, with what it has said, unless that may be otherwise."""
    # A server of MXNet is one by its environment.
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DMLC_ROLE")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode == 0


if __name__ == "__main__":
    unfit = False
    for name in sys.argv[1:] or RECIPES:
        try:
            print(made(name), flush=True)
        except Unfit as error:
            print(error, file=sys.stderr, flush=True)
            unfit = True
    sys.exit(unfit)
