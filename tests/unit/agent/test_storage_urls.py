"""What is a storage URL, and what is a path on a host."""

from __future__ import annotations

import pytest

from dtctl.agent.records.values import is_storage_url, normal_url, paths_of, urls_of
from dtctl.plan.hosts import on_host

URLS = (
    *("gs://b", "gs://b/run/", "s3://b/a%20b", "hdfs:///user/ada", "hdfs://name:8020/user/ada"),
    *("abfs://container@account.dfs.core.windows.net/run", "webhdfs://name:9870/x", "http://h:8000/x", "https://h/x"),
)
PATHS = ("/data/gs:/b", "out", "~/gs", "a:b", "c://x", "gs:b")


@pytest.mark.parametrize("url", URLS)
def test_a_storage_url_stays_as_it_is(url: str) -> None:
    assert is_storage_url(url)
    assert on_host(url, "digits") == url


@pytest.mark.parametrize(
    "text",
    [
        *PATHS,
        *("gs://", "gs:///x", "GS://b", "ftp://h/x", "file:///x", "s3://key:secret@b/x", "s3://@b/x"),
        *("gs://b/a b", "gs://b/x\n", "https://h/x?sig=abc", "gs://b/x#1", "gs://b/$HOME", "gs://b/${X}", ""),
        "gs://b::file:///etc",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert not is_storage_url(text)


def test_places_are_parted_into_paths_and_urls() -> None:
    assert (paths_of([*URLS, *PATHS]), urls_of([*URLS, *PATHS])) == (list(PATHS), list(URLS))


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("gs://b/run///", "gs://b/run"),
        ("gs://b//run", "gs://b//run"),  # another object
        ("s3://b/", "s3://b"),
        ("webhdfs://Name:9870//user/ada/", "webhdfs://name:9870/user/ada"),
        ("hdfs:///user//ada", "hdfs:///user/ada"),
        ("abfss://C@Account.dfs.core.windows.net/Run", "abfs://C@account.dfs.core.windows.net/Run"),
        ("/data/x/", "/data/x"),
        ("/", "/"),
    ],
)
def test_one_place_has_one_url(written: str, same: str) -> None:
    assert normal_url(written) == normal_url(same) == same
