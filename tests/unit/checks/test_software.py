"""Which versions go together, and what is missing where."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest

from dtctl.config.cluster import Launch, Trainer
from dtctl.operations.checks.programs import Needs
from dtctl.operations.checks.software import TOPIC
from dtctl.operations.checks.topic import Heard, Scene, fails
from dtctl.render.diagnosis import remedies
from tests.unit.checks.scenes import judged, python, scene, sentence, software, told
from tests.unit.clusters import cluster, job, ssh_host

SAME = {host: software(tensorflow="2.21.0", keras="3.15.1", tensorboard="2.21.0") for host in "abcd"}


def test_hosts_that_have_the_same_pass() -> None:
    assert judged(TOPIC, scene(), SAME) == []


def test_each_host_is_asked_once_for_what_its_programs_import() -> None:
    value = scene(modules=("tensorflow",))
    first = TOPIC.ask(value, Heard())
    assert sorted(first) == ["a", "b", "c", "d"]
    assert [one["modules"] for one in first["a"]["pythons"]] == [["tensorflow"]]
    assert first["a"]["started"]
    assert TOPIC.ask(value, Heard([SAME])) == {}


def test_in_passing_pythons_are_started_and_import_nothing() -> None:
    question = TOPIC.ask(scene(brief=True), Heard())["a"]
    assert question["started"]
    assert not question["imported"]


def broken_scene() -> Scene:
    plain = scene()
    return dataclasses.replace(plain, needs=dict.fromkeys(plain.needs, Needs(broken=("train.py", 3, "invalid syntax"))))


def test_a_syntax_error_is_found_with_its_place_unless_the_host_has_a_newer_python() -> None:
    ours = "{}.{}.1".format(*sys.version_info)
    facts: dict[str, Any] = {"a": {"pythons": [python(version=ours)]}, "b": {"pythons": [python(version="3.99.0")]}}
    (one,) = [one for one in judged(TOPIC, broken_scene(), facts) if one.signature.name == "syntax_error"]
    assert one.seen.hosts == ("a",)
    assert sentence(one).endswith("will fail on a: train.py:3: invalid syntax")


def test_a_missing_module_is_named_with_the_line_that_imports_it() -> None:
    plain = scene()
    needs = Needs(("absent",), places={"absent": "lib/near.py:7"})
    known = dataclasses.replace(plain, needs=dict.fromkeys(plain.needs, needs))
    (one,) = judged(TOPIC, known, {"a": {"pythons": [python(missing=["absent"])]}})
    assert "the program imports absent (lib/near.py:7), which" in sentence(one)


def test_a_program_that_is_no_python_is_not_asked_about() -> None:
    value = cluster(job("worker", ["a"], [2222], launch=Launch(command=("./train",))))
    assert TOPIC.ask(scene(value), Heard()) == {}


def test_a_missing_module_is_told_with_the_version_that_the_others_have() -> None:
    facts = {**SAME, "d": {"pythons": [python(missing=["tensorflow", "sklearn"])]}}
    found = judged(TOPIC, scene(), facts)
    assert told(found) == {"modules_missing": ("d",)}
    assert fails(found[0])
    assert sentence(found[0]).startswith("worker:1 will fail on d: the program imports tensorflow, sklearn")
    assert remedies(found[0])[0].endswith("-m pip install tensorflow==2.21.0 scikit-learn")


def test_what_a_setup_may_install_is_only_a_warning() -> None:
    value = cluster(trainer=dataclasses.replace(cluster().trainer, setup="pip install -r requirements.txt"))
    facts = {**SAME, "c": {"pythons": [python(missing=["tensorflow"])]}, "d": {"pythons": [python("")]}}
    found = judged(TOPIC, scene(value), facts)
    assert told(found) == {"modules_to_come": ("c",), "python_to_come": ("d",)}
    assert not any(map(fails, found))


def test_without_a_python_a_task_cannot_start() -> None:
    found = judged(TOPIC, scene(), {**SAME, "d": {"pythons": [python("")]}})
    assert told(found) == {"python_missing": ("d",)}


def test_a_python_that_does_not_answer_is_told_with_its_words() -> None:
    found = judged(TOPIC, scene(), {**SAME, "d": {"pythons": [python(problem="No module named 'encodings'")]}})
    assert told(found) == {"python_broken": ("d",)}
    assert "No module named 'encodings'" in sentence(found[0])


def test_the_host_that_differs_from_most_is_named() -> None:
    facts = {**SAME, "b": software(tensorflow="2.19.0", keras="3.15.1", tensorboard="2.21.0")}
    found = judged(TOPIC, scene(), facts)
    assert told(found) == {"framework_differs": ("b",)}
    assert "2.19.0 on b, 2.21.0 on a,c,d" in sentence(found[0])
    assert remedies(found[0]) == ["dtctl exec @b -- /usr/bin/python3 -m pip install tensorflow==2.21.0"]


def test_of_as_many_hosts_those_with_the_older_version_are_named() -> None:
    facts = {"a": software(tensorflow="2.9.0"), "b": software(tensorflow="2.21.0")}
    found = judged(TOPIC, scene(), facts)
    assert told(found) == {"framework_differs": ("a",)}
    assert remedies(found[0])[0].endswith("tensorflow==2.21.0")


def test_other_packages_and_pythons_that_differ_are_warnings() -> None:
    facts: dict[str, Any] = {**SAME, "a": software(tensorflow="2.21.0", keras="3.14.0", tensorboard="2.21.0")}
    facts["b"] = {"pythons": [dict(SAME["b"]["pythons"][0], version="3.9.2")]}
    found = judged(TOPIC, scene(), facts)
    assert told(found) == {"packages_differ": ("a",), "pythons_differ": ("b",)}
    assert not any(map(fails, found))


@pytest.mark.parametrize(
    ("uses", "packages", "signature"),
    [
        (["estimator"], {"tensorflow": "2.16.1"}, "estimator_gone"),
        (["estimator"], {"tensorflow": "2.15.1"}, None),
        (["fit", "ps_strategy"], {"tensorflow": "2.21.0", "keras": "3.15.1"}, "keras_3_fit"),
        (["fit", "ps_strategy", "keras_2"], {"tensorflow": "2.21.0", "keras": "3.15.1"}, None),
        (["fit", "ps_strategy"], {"tensorflow": "2.15.1", "keras": "2.15.0"}, None),
        (["fit"], {"tensorflow": "2.21.0", "keras": "3.15.1"}, None),
        (["summaries"], {"tensorflow": "2.21.0"}, "summaries_without_tensorboard"),
        (["summaries"], {"tensorflow": "2.21.0", "tensorboard": "2.21.0"}, None),
        (["summaries", "graphs"], {"tensorflow": "2.21.0"}, None),
        (["summaries"], {"torch": "2.2.0"}, None),
    ],
)
def test_known_traps_are_told_before_they_snap(
    uses: list[str], packages: dict[str, str], signature: str | None
) -> None:
    found = judged(TOPIC, scene(uses=uses), {host: software(**packages) for host in "abcd"})
    assert [one.signature.name for one in found] == ([signature] if signature else [])
    assert all(one.seen.hosts == ("a", "b", "c", "d") for one in found)


def test_what_cannot_be_imported_is_told_with_its_error() -> None:
    facts = {
        "c": {"pythons": [python(imported={"tensorflow": {"seconds": 3, "problem": "ImportError: libcuda.so.1"}})]}
    }
    found = judged(TOPIC, scene(), facts)
    assert told(found) == {"import_fails": ("c",)}
    assert "cannot import tensorflow: ImportError: libcuda.so.1" in sentence(found[0])


def test_what_python_path_says_of_the_code_is_left_out() -> None:
    trainer = Trainer(code=cluster().trainer.code, venv="venv")
    launch = Launch(command=("python", "train.py"), env={"PYTHONPATH": "/opt/lib"})
    value = cluster(job("worker", ["a"], [2222], launch=launch), trainer=trainer)
    asked = TOPIC.ask(scene(value), Heard())["a"]["pythons"]
    assert [(one["program"], one["python_path"]) for one in asked] == [
        ("\0HOME/dtctl/digits/venv/bin/python", "/opt/lib")
    ]


@pytest.mark.parametrize(
    ("has", "signature"),
    [
        ({"packages": {"tensorflow": "2.21.0"}}, "cuda_missing"),
        ({"packages": {"tensorflow": "2.21.0"}, "cuda": "packages of pip"}, None),
        ({"packages": {"tensorflow-cpu": "2.21.0"}}, "tensorflow_without_gpus"),
        ({"packages": {"torch": "2.2.0"}}, None),
        ({}, None),
    ],
)
def test_gpus_that_would_stay_idle_are_told(has: dict[str, Any], signature: str | None) -> None:
    jobs = [job("ps", ["a"], [2222]), job("worker", ["a"], [2223])]
    value = scene(cluster(*jobs, hosts=[ssh_host("a", gpus=1)]))
    assert TOPIC.ask(value, Heard())["a"]["pythons"][0]["cuda"] is True
    found = judged(TOPIC, value, {"a": {"pythons": [python(**has)]}})
    assert [one.signature.name for one in found] == ([signature] if signature else [])
    assert all([str(task) for task in one.seen.tasks] == ["worker:0"] for one in found)


def test_without_gpus_nobody_looks_for_cuda() -> None:
    assert TOPIC.ask(scene(), Heard())["a"]["pythons"][0]["cuda"] is False
    assert judged(TOPIC, scene(), SAME) == []
