"""Servers of Cloud Storage (gcp-storage-emulator), S3 (moto), Azure (Azurite) and WebHDFS (webhdfs.py) on this machine,
with a bucket `runs`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests import webhdfs
from tests.hosts.ports import free_port
from tests.waiting import eventually

BUCKET = "runs"


@dataclass(frozen=True)
class Bucket:
    """`url`: of the bucket; `env`: what a program needs to reach and to use it."""

    url: str
    env: Mapping[str, str]
    system: Any
    """The file system, as fsspec opens it."""
    root: str = BUCKET
    """The root of the bucket in it."""
    server: Any = None
    """The server of webhdfs.py, which can be made to fail."""

    def put(self, name: str, data: bytes) -> None:
        self.system.pipe_file(f"{self.root}/{name}", data)

    def names(self) -> list[str]:
        self.system.invalidate_cache()
        return sorted(path.removeprefix(f"{self.root}/") for path in self.system.find(self.root))


@contextmanager
def cloud_storage() -> Iterator[Bucket]:
    from gcsfs.core import GCSFileSystem

    plain = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}  # the emulator speaks no gRPC
    port = free_port()
    program = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}"]
    address = f"http://127.0.0.1:{port}"
    with _started([*program, "--in-memory", f"--default-bucket={BUCKET}"], address):
        system = GCSFileSystem(endpoint_url=address, token="anon", skip_instance_cache=True)
        yield Bucket(f"gs://{BUCKET}", {"STORAGE_EMULATOR_HOST": address, **plain}, system)


@contextmanager
def s3() -> Iterator[Bucket]:
    """`server.put` is quicker than `put`."""
    import s3fs
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    keys = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-secret-that-nobody-may-see"}
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    system = s3fs.S3FileSystem(
        endpoint_url=address,
        key=keys["AWS_ACCESS_KEY_ID"],
        secret=keys["AWS_SECRET_ACCESS_KEY"],
        skip_instance_cache=True,
    )
    system.mkdir(BUCKET)
    backend = s3_backends["123456789012"]["aws"]
    try:
        yield Bucket(f"s3://{BUCKET}", {"AWS_ENDPOINT_URL": address, **keys}, system, server=backend)
    finally:
        backend.reset()
        server.stop()


@contextmanager
def hdfs() -> Iterator[Bucket]:
    from fsspec.implementations.webhdfs import WebHDFS

    with webhdfs.serving() as (server, address):
        host, _, port = address.partition(":")
        server.make(f"/{BUCKET}")
        system = WebHDFS(host, int(port), skip_instance_cache=True)
        yield Bucket(f"webhdfs://{address}/{BUCKET}", {}, system, f"/{BUCKET}", server)


AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of Azurite's only account, from its documentation."""


@contextmanager
def azure() -> Iterator[Bucket]:
    import adlfs

    if (program := shutil.which("azurite-blob")) is None:
        pytest.skip("there is no Azurite here (npm install --global azurite)")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with _started([program, "--blobHost=127.0.0.1", f"--blobPort={port}", *options], address):
        account = f"AccountName=devstoreaccount1;AccountKey={AZURITE_KEY}"
        connection = f"DefaultEndpointsProtocol=http;{account};BlobEndpoint={address}/devstoreaccount1;"
        system = adlfs.AzureBlobFileSystem(connection_string=connection, skip_instance_cache=True)
        system.mkdir(BUCKET)
        yield Bucket(f"abfs://{BUCKET}", {"AZURE_STORAGE_CONNECTION_STRING": connection}, system)


@contextmanager
def _started(words: list[str], address: str) -> Iterator[None]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    child = subprocess.Popen(words, env={**os.environ, "PYTHONWARNINGS": ""}, **quiet)  # type: ignore[call-overload]
    try:
        eventually(lambda: _answers(address), what=f"an answer of {words[-1]}")
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
