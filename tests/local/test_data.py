"""`dtctl data` from the first push to the drop, and `up` that needs the data."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest
import requests
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ServiceRequestError
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from gcsfs.retry import HttpError
from s3fs.errors import translate_boto_error

from dtctl.errors import ExitCode
from dtctl.rooms.storage import is_passing
from tests.desk import Desk
from tests.waiting import eventually

TRAINER = """\
import os, pathlib, sys
print("reads", *sorted(path.name for path in pathlib.Path(sys.argv[1]).rglob("*.rec")), flush=True)
"""

CLUSTER = """\
name: {name}
hosts:
  node-1: {{transport: local, dirs: {{data: HOME/ssd-1}}}}
  node-2: {{transport: local}}
jobs: {{worker: {{hosts: "node-[1-2]"}}}}
trainer: {{command: [python, train.py, "{{data_dir}}"], dialect: none, code: code}}
dirs: {{data: HOME/ssd-2}}
data: {{from: digits, shard: SHARD}}
"""


def write(home: Desk, shard: str = "none") -> tuple[Path, Path]:
    """The directory of the hosts' data."""
    (home.project / "code").mkdir(exist_ok=True)
    (home.project / "code" / "train.py").write_text(TRAINER)
    for number in range(3):
        place = home.project / "digits" / "train"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.rec").write_text(f"record {number}\n" * 100)
    home.write_cluster(CLUSTER.replace("HOME", str(home.home)).replace("SHARD", shard))
    home.allow()
    return home.home / "ssd-1", home.home / "ssd-2"


def states(home: Desk, *words: str, code: int = 0) -> list[str]:
    return [one["state"] for one in json.loads(home.dtctl("data", *words, "-o", "json", code=code))["places"]]


def printed(home: Desk, task: str) -> str:
    found: list[str] = []

    def reads() -> bool:
        found[:] = [line for line in home.dtctl("logs", task, "--raw").splitlines() if "reads" in line]
        return bool(found)

    eventually(reads, 60, f"{task} reads")
    return found[-1].partition("reads ")[2]


def test_data_from_the_first_push_to_the_drop(home: Desk) -> None:
    places = write(home)
    refused = home.run("up", "-q")
    assert refused.returncode == ExitCode.PREFLIGHT
    assert "node-1 lacks the data: nothing was pushed to" in refused.stderr
    assert "dtctl data push    sends it" in refused.stderr
    assert states(home) == ["missing", "missing"]
    assert home.dtctl("data", "push").splitlines() == [
        f"node-{number}: {place}: 3 files sent" for number, place in enumerate(places, 1)
    ]
    assert states(home) == ["complete", "complete"]
    home.dtctl("up", "-q")
    assert printed(home, "worker:1") == "0.rec 1.rec 2.rec"
    home.dtctl("wait")
    home.dtctl("down", "-y")
    home.dtctl("gc", "-y", "--all")
    assert states(home) == ["complete", "complete"], "down and gc remove no data"

    damaged = places[1] / "train" / "1.rec"
    damaged.write_text(damaged.read_text().replace("record", "RECORD"))
    assert states(home) == ["complete", "changed"]
    steps = home.run("data").stderr.splitlines()
    assert steps == ["dtctl data verify    reads the changed files", "dtctl data push    sends what is missing"]
    verified = home.run("data", "verify")
    assert verified.returncode == ExitCode.RUN_FAILED
    assert f"node-2:{places[1]}: train/1.rec" in verified.stdout
    (home.project / "digits" / "new.rec").write_text("new")
    assert states(home) == ["differs", "differs"]
    assert "2 files sent" in home.dtctl("data", "push")
    assert states(home, "verify") == ["complete", "complete"]
    assert home.run("data", "drop").returncode == ExitCode.USAGE, "it asks first"
    assert home.dtctl("data", "drop", "-y").count("4 files removed") == 2
    assert not any(place.exists() for place in places)


def test_each_worker_reads_its_own_share_and_on_this_machine_alone_the_source(home: Desk) -> None:
    places = write(home, "worker")
    home.dtctl("data", "push")
    assert [sorted(path.name for path in place.rglob("*.rec")) for place in places] == [["0.rec", "2.rec"], ["1.rec"]]
    home.dtctl("up", "-q")
    assert [printed(home, task) for task in ("worker:0", "worker:1")] == ["0.rec 2.rec", "1.rec"]
    home.dtctl("wait")
    home.dtctl("data", "drop", "-y")
    home.dtctl("up", "--local", "-q", "--replace")
    assert printed(home, "worker:1") == "0.rec 1.rec 2.rec"
    home.dtctl("wait")


def of_boto(code: str, status: int) -> Exception:
    answer = {"Error": {"Code": code, "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error: Exception = translate_boto_error(ClientError(answer, "GetObject"))
    return error


def of_azure(kind: type[HttpResponseError], status: int) -> Exception:
    error = kind("x")
    error.status_code = status
    return error


def of_requests(status: int) -> Exception:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError("x", response=response)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (HttpError({"code": 503, "message": ""}), True),
        (HttpError({"code": 429, "message": ""}), True),
        (HttpError({"code": 401, "message": "Invalid Credentials"}), False),
        (of_boto("SlowDown", 503), True),
        (of_boto("InternalError", 500), True),
        (of_boto("ExpiredToken", 400), False),
        (of_boto("AccessDenied", 403), False),
        (EndpointConnectionError(endpoint_url="http://x"), True),
        (NoCredentialsError(), False),
        (of_azure(HttpResponseError, 503), True),
        (of_azure(ClientAuthenticationError, 401), False),
        (ServiceRequestError("no route"), True),
        (of_requests(503), True),
        (of_requests(403), False),
        (requests.ConnectionError(), True),
        (aiohttp.ServerDisconnectedError(), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (PermissionError("Token has expired"), False),
        (FileNotFoundError("x"), False),
        (ValueError("x"), False),
    ],
    ids=repr,
)
def test_only_refusals_of_an_overloaded_server_are_temporary(error: Exception, passes: bool) -> None:
    assert is_passing(error) == passes
