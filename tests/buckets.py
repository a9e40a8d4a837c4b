"""Servers of Cloud Storage (gcp-storage-emulator) and S3 (moto) on this machine, with a bucket `runs`."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.hosts.ports import free_port
from tests.waiting import eventually

BUCKET = "runs"


@dataclass(frozen=True)
class Bucket:
    """`url`: of the bucket; `env`: what a program needs to reach and to use it."""

    url: str
    env: Mapping[str, str]
    system: Any
    """As fsspec opens it."""

    def put(self, name: str, data: bytes) -> None:
        self.system.pipe_file(f"{BUCKET}/{name}", data)

    def names(self) -> list[str]:
        self.system.invalidate_cache()
        return sorted(path.removeprefix(f"{BUCKET}/") for path in self.system.find(BUCKET))


@contextmanager
def cloud_storage() -> Iterator[Bucket]:
    from gcsfs.core import GCSFileSystem

    plain = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # the emulator speaks no gRPC
    port = free_port()
    arguments = ["gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    address = f"http://127.0.0.1:{port}"
    with _serving([*arguments, f"--default-bucket={BUCKET}"], address):
        system = GCSFileSystem(endpoint_url=address, token="anon", skip_instance_cache=True)
        yield Bucket(f"gs://{BUCKET}", {"STORAGE_EMULATOR_HOST": address, **plain}, system)


@contextmanager
def s3() -> Iterator[Bucket]:
    import s3fs

    port = free_port()
    address = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-may-see"}
    with _serving(["moto.server", "-H", "127.0.0.1", "-p", str(port)], address):
        system = s3fs.S3FileSystem(
            endpoint_url=address,
            key=keys["AWS_ACCESS_KEY_ID"],
            secret=keys["AWS_SECRET_ACCESS_KEY"],
            skip_instance_cache=True,
        )
        system.mkdir(BUCKET)
        yield Bucket(f"s3://{BUCKET}", {"AWS_ENDPOINT_URL": address, **keys}, system)


@contextmanager
def _serving(arguments: list[str], address: str) -> Iterator[None]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen([sys.executable, "-m", *arguments], env={**os.environ, "PYTHONWARNINGS": ""}, **quiet)  # type: ignore[call-overload]
    try:
        eventually(lambda: _answers(address), what=f"an answer of {arguments[0]}")
        yield
    finally:
        child.kill()
        child.wait()


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True
