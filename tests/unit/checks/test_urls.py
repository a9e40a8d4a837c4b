"""Who is asked about the storage URLs of a run, and what the answers mean."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.check.records import UrlsFacts
from dtctl.config.cluster import Launch, Trainer
from dtctl.render.findings import remedies
from dtctl.rooms.check import Answers, CheckContext
from dtctl.rooms.check.urls import TOPIC
from tests.unit.checks.contexts import context, judged, sentence
from tests.unit.clusters import cluster, job

OUT, DATA = "gs://runs/digits", "s3://data/digits"
PYTHON = Launch(command=("python3", "train.py"))


def of(dirs: dict[str, str], jobs: Iterable[str] = ("ps", "worker"), **fields: Any) -> CheckContext:
    """A job has a host of its first letter, and the workers one more, `x`."""
    hosts = {name: [name[0], "x"] if name == "worker" else [name[0]] for name in jobs}
    made = [job(name, own, [2222] * len(own), launch=PYTHON) for name, own in hosts.items()]
    return context(cluster(*made, dirs=dirs, **fields))


def urls(value: CheckContext) -> dict[str, list[tuple[str, bool]]]:
    """Host -> its URLs, and whether it writes there."""
    asked = TOPIC.questions(value, Answers())
    return {host: [(one["url"], one["write"]) for one in question["urls"]] for host, question in asked.items()}


@pytest.mark.parametrize(
    ("dirs", "jobs", "asked"),
    [
        ({"output": OUT}, ("ps", "worker"), {"p": [(OUT, True)], "w": [(OUT, True)]}),
        ({"output": OUT}, ("worker",), {"w": [(OUT, True)], "x": [(OUT, True)]}),
        ({"output": OUT}, ("ps", "worker", "evaluator"), {host: [(OUT, True)] for host in "pwe"}),
        ({"data": DATA}, ("ps", "worker"), {"w": [(DATA, False)], "x": [(DATA, False)]}),
        ({"log": OUT}, ("ps", "worker"), {host: [(OUT, True)] for host in "pwx"}),
        ({"data": OUT, "output": OUT}, ("ps", "worker"), {"p": [(OUT, True)], "w": [(OUT, True)], "x": [(OUT, False)]}),
        ({"data": "https://h/digits", "output": "/data"}, ("ps", "worker"), {}),
    ],
)
def test_only_hosts_that_save_or_read_are_asked(
    dirs: dict[str, str], jobs: tuple[str, ...], asked: dict[str, list[tuple[str, bool]]]
) -> None:
    assert urls(of(dirs, jobs)) == asked


def test_the_question_has_what_the_trainer_is_given_and_is_asked_once() -> None:
    value = context(
        cluster(
            job("worker", ["a"], [2222], launch=Launch(command=("python3", "t.py"), env={"AWS_REGION": "eu"})),
            dirs={"output": OUT},
            trainer=Trainer(code=Path("/p"), secrets=("KEY", "UNKNOWN"), keep_proxy=True),
        ),
        modules=("torch",),
        secrets={"KEY": "v", "OTHER": "w"},
    )
    (question,) = TOPIC.questions(value, Answers()).values()
    assert (question["secrets"], question["keep_proxy"]) == ({"KEY": "v"}, True)
    assert question["variables"]["AWS_REGION"] == "eu"
    assert (question["libraries"], question["modules"]) == (["fsspec", "tensorflow"], ["torch"])
    assert "secrets={" not in repr(value)
    assert TOPIC.questions(value, Answers([{}])) == {}


def facts(kind: str = "", said: str = "", library: str = "TensorFlow 2.21.0", **fields: Any) -> UrlsFacts:
    one = {"url": OUT, "library": library, "doing": "write" if kind else "", "kind": kind, "said": said}
    return checked(UrlsFacts, {"path": "/usr/bin/python3", "tried": [{**one, **fields}]})


def test_hosts_without_access_are_reported_together() -> None:
    refused = facts("denied", "HTTP response code 401: Anonymous caller")
    (one,) = judged(TOPIC, of({"output": OUT}), {"p": refused, "w": refused, "x": facts()})
    assert sentence(one) == (
        "p,w may not write in gs://runs/digits: HTTP response code 401: Anonymous caller (TensorFlow 2.21.0)"
    )
    assert one.signature.stops


@pytest.mark.parametrize(
    ("kind", "fields", "means", "remedy"),
    [
        (
            "missing",
            {},
            "there is no gs://runs, or nothing in",
            "gcloud storage buckets create gs://runs    creates the bucket",
        ),
        ("missing", {"url": "s3://data/x"}, "there is no s3://data", "aws s3 mb s3://data    creates the bucket"),
        ("denied", {}, "may not write", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("denied", {"url": "s3://data/x"}, "may not write", "AWS_ACCESS_KEY_ID"),
        ("scheme", {"url": "s3://data/x"}, "TensorFlow 2.21.0 on w opens no s3://", "up to TensorFlow 2.16"),
        ("scheme", {"url": "abfs://c@a/x", "library": "fsspec 1"}, "opens no abfs://", "-m pip install adlfs"),
        ("unresolved", {}, "w cannot resolve the name of the server of gs://runs/digits: words", "/etc/resolv.conf"),
        ("other", {}, "w could not write in gs://runs/digits: words", "dtctl up --force"),
    ],
)
def test_each_refusal_has_the_hosts_message_and_the_next_command(
    kind: str, fields: dict[str, Any], means: str, remedy: str
) -> None:
    value = of({"output": fields.get("url", OUT)})
    (one,) = judged(TOPIC, value, {"w": facts(kind, "words", **fields)})
    assert means in sentence(one)
    assert "words" in sentence(one)
    assert remedy in "\n".join(remedies(one))
    assert bool(one.signature.stops) is (kind != "other")


def test_a_key_that_is_named_is_looked_for_first() -> None:
    launch = Launch(command=("python3", "t.py"), env={"GOOGLE_APPLICATION_CREDENTIALS": "/keys/runs.json"})
    value = context(cluster(job("worker", ["a"], [2222], launch=launch), dirs={"output": OUT}))
    (one,) = judged(TOPIC, value, {"a": facts("denied", "401")})
    assert remedies(one)[0].startswith("dtctl exec @a -- ls -l /keys/runs.json")


def test_a_python_without_a_library_is_a_note_unless_the_setup_may_bring_one() -> None:
    silent: Any = {"w": {"path": "/usr/bin/python3", "problem": "No module named 'fsspec'", "tried": []}}
    (one,) = judged(TOPIC, of({"output": OUT}), silent)
    assert (one.signature.name, one.signature.stops) == ("url_not_tried", "")
    assert (
        judged(TOPIC, of({"output": OUT}, trainer=Trainer(code=Path("/p"), setup="pip install fsspec")), silent) == []
    )


def test_usable_urls_are_reported_by_host() -> None:
    (line,) = TOPIC.lines(of({"output": OUT}), Answers([{"w": facts(), "p": facts("denied", "401")}]))
    assert (line.what, line.values) == (OUT, {"w": "usable", "p": "not usable"})  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("modules", "libraries"),
    [
        (("numpy", "tensorflow", "torch"), ["tensorflow"]),
        (("s3fs",), ["fsspec", "tensorflow"]),
        (("keras",), ["tensorflow", "fsspec"]),
        ((), ["tensorflow", "fsspec"]),
    ],
)
def test_the_library_is_the_one_that_the_program_imports(modules: tuple[str, ...], libraries: list[str]) -> None:
    made = cluster(job("worker", ["a"], [2222], launch=PYTHON), dirs={"output": OUT})
    (question,) = TOPIC.questions(context(made, modules=modules), Answers()).values()
    assert question["libraries"] == libraries


def test_answer_about_an_unrequested_url_is_ignored() -> None:
    reported = {"w": facts("missing", "words", url="gs://b;reboot/x")}
    assert judged(TOPIC, of({"output": OUT}), reported) == []
    assert list(TOPIC.lines(of({"output": OUT}), Answers([reported]))) == []
