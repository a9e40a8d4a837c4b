"""Whether a Python of trainers can use storage URLs: asked of servers that speak the protocols of S3 and Google."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.agent.host import AgentHost
from tests.buckets import Bucket, cloud_storage, hdfs, s3
from tests.hostile.test_storage import LIES

pytestmark = pytest.mark.xdist_group("storage")
"""As tests/local/test_storage_urls.py."""


def ask(host: AgentHost, *urls: str, write: bool = True, program: str = sys.executable, **fields: Any) -> Any:
    question = {
        "token": "ab",
        "host": "h1",
        "program": program,
        "libraries": ["fsspec"],
        "urls": [{"url": url, "write": write} for url in urls],
        **fields,
    }
    with host.open() as talk:
        return talk.ask("check", **host.about({"ask": {"urls": question}}))["facts"]["urls"]


@pytest.mark.parametrize("serve", [cloud_storage, s3])
def test_a_bucket_is_written_read_and_listed_and_nothing_stays_in_it(
    host: AgentHost, serve: Callable[[], AbstractContextManager[Bucket]]
) -> None:
    with serve() as bucket:
        bucket.put("old/checkpoint", b'model_checkpoint_path: "model.ckpt-1"\n')
        before = bucket.names()
        urls = (f"{bucket.url}/new/", f"{bucket.url}/old", f"{bucket.url.replace('runs', 'none')}/x")
        answer = ask(host, *urls, variables=bucket.env)
        assert bucket.names() == before
        new, old, none = answer["tried"]
        assert new["library"].startswith("fsspec ")
        assert [(one["kind"], one["saved"]) for one in (new, old)] == [("", False), ("", True)]
        assert (none["url"], none["doing"], none["kind"]) == (urls[2], "write", "missing")
        assert none["said"]
        assert "dtctl" not in none["said"]  # as every host says it
        (data,) = ask(host, f"{bucket.url}/nowhere", write=False, variables=bucket.env)["tried"]
        assert (data["doing"], data["kind"]) == ("list", "missing")


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with s3() as served:
        yield served


def test_credentials_travel_as_secrets_and_are_not_in_the_answer(host: AgentHost, bucket: Bucket) -> None:
    secrets = {name: value for name, value in bucket.env.items() if "KEY" in name}
    plain = {name: value for name, value in bucket.env.items() if name not in secrets}
    url = f"{bucket.url}/x"
    assert ask(host, url, variables=plain, secrets=secrets)["tried"][0]["kind"] == ""
    (without,) = ask(host, url, variables=plain)["tried"]
    assert (without["doing"], without["kind"], without["said"]) == ("write", "denied", "Unable to locate credentials")
    shouting = host.home / "python"
    shouting.write_text(f"#!/bin/sh\necho $AWS_SECRET_ACCESS_KEY >&2\nexec {sys.executable} -c 'raise SystemExit(1)'\n")
    shouting.chmod(0o755)
    answer = ask(host, url, program=str(shouting), variables=plain, secrets=secrets)
    assert (answer["tried"], answer["problem"]) == ([], "***")


def test_a_server_whose_name_has_no_address_is_told_from_one_that_refuses(host: AgentHost, bucket: Bucket) -> None:
    (endpoint,) = (name for name, value in bucket.env.items() if value.startswith("http"))
    (gone,) = ask(host, f"{bucket.url}/x", variables={**bucket.env, endpoint: "http://storage.invalid"})["tried"]
    assert (gone["doing"], gone["kind"]) == ("write", "unresolved")
    (refused,) = ask(host, f"{bucket.url}/x", variables={**bucket.env, endpoint: "http://127.0.0.1:1"})["tried"]
    assert refused["kind"] == "other"


def test_a_scheme_that_no_library_opens_is_reported_with_the_librarys_message(host: AgentHost) -> None:
    (one,) = ask(host, "hdfs://namenode/x")["tried"]
    assert (one["doing"], one["kind"]) == ("write", "scheme")
    assert "pyarrow" in one["said"]


def test_a_python_without_any_library_says_which_is_missing(host: AgentHost) -> None:
    bare = host.home / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    answer = ask(host, "gs://runs/x", program=str(bare))
    assert (answer["tried"], answer["problem"]) == ([], "No module named 'fsspec'")


def test_where_there_is_no_such_python_nothing_is_said_of_urls(host: AgentHost) -> None:
    answer = ask(host, "gs://runs/x", program="\0HOME/nowhere")
    assert (answer["path"], answer["problem"], answer["tried"]) == ("", "", [])


@pytest.mark.parametrize("what", ["an endless error", "an endless redirect"])
@pytest.mark.timeout(200)
def test_a_server_whose_answer_is_endless_takes_a_bounded_part_of_the_memory(host: AgentHost, what: str) -> None:
    with hdfs() as served:
        served.server.lie = LIES[what]
        (one,) = ask(host, f"{served.url}/digits")["tried"]
    assert (one["kind"], one["said"]) == ("other", "MemoryError")
