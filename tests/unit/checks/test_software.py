"""Which versions go together, what is missing where, and what a program's text tells of what it needs."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

from dtctl.config.cluster import Environment, Launch, Trainer
from dtctl.operations.findings import fails
from dtctl.plan.run import plan_run
from dtctl.render.findings import remedies
from dtctl.rooms.check import Answers, CheckContext
from dtctl.rooms.check.programs import Needs, broken_line, needs_of, program_of
from dtctl.rooms.check.software import TOPIC
from tests.unit.checks.contexts import context, hosts_by_signature, judged, python, sentence, software
from tests.unit.clusters import cluster, job, ssh_host

SAME = {host: software(tensorflow="2.21.0", keras="3.15.1", tensorboard="2.21.0") for host in "abcd"}


def test_in_passing_pythons_are_started_and_import_nothing() -> None:
    question = TOPIC.questions(context(brief=True), Answers())["a"]
    assert question["started"]
    assert not question["imported"]


def broken_scene() -> CheckContext:
    plain = context()
    return dataclasses.replace(plain, needs=dict.fromkeys(plain.needs, Needs(broken=("train.py", 3, "invalid syntax"))))


def test_a_syntax_error_is_found_with_its_place_unless_the_host_has_a_newer_python() -> None:
    ours = "{}.{}.1".format(*sys.version_info)
    facts: dict[str, Any] = {"a": {"pythons": [python(version=ours)]}, "b": {"pythons": [python(version="3.99.0")]}}
    (one,) = [one for one in judged(TOPIC, broken_scene(), facts) if one.signature.name == "syntax_error"]
    assert one.seen.hosts == ("a",)
    assert sentence(one).endswith("will fail on a: train.py:3: invalid syntax")


def test_with_the_code_there_each_python_says_what_it_cannot_compile() -> None:
    value = dataclasses.replace(broken_scene(), bundle="0" * 64)
    assert TOPIC.questions(value, Answers())["a"]["pythons"][0]["bundle"] == "0" * 64
    old = python(version="3.8.0", broken={"file": "near.py", "line": 7, "problem": "invalid syntax"})
    (one,) = judged(TOPIC, value, {"a": {"pythons": [old]}, "b": {"pythons": [python(version="3.8.0")]}})
    assert sentence(one).endswith("will fail on a: near.py:7: invalid syntax")


def test_missing_module_of_an_environment_names_its_requirements_file() -> None:
    environment = Environment(requirements="needs.txt")
    value = cluster(trainer=dataclasses.replace(cluster().trainer, environment=environment))
    facts = {"a": {"pythons": [python(missing=["sklearn"])]}}
    assert hosts_by_signature(judged(TOPIC, context(value), facts)) == {"modules_to_come": ("a",)}
    (one,) = judged(TOPIC, context(value, brief=True), facts)
    assert fails(one)
    assert list(remedies(one)) == ["add scikit-learn to needs.txt, from which the environment is created"]


def test_a_missing_module_is_named_with_the_line_that_imports_it() -> None:
    plain = context()
    needs = Needs(("absent",), places={"absent": "lib/near.py:7"})
    known = dataclasses.replace(plain, needs=dict.fromkeys(plain.needs, needs))
    (one,) = judged(TOPIC, known, {"a": {"pythons": [python(missing=["absent"])]}})
    assert "the program imports absent (lib/near.py:7), which" in sentence(one)


def test_module_of_the_standard_library_is_never_installed_by_name() -> None:
    facts = {**SAME, "d": {"pythons": [python(missing=["distutils", "sklearn"])]}}
    found = {one.signature.name: one for one in judged(TOPIC, context(), facts)}
    assert found.keys() == {"standard_module_missing", "modules_missing"}
    assert "has not had it since 3.12" in sentence(found["standard_module_missing"])
    assert not [line for one in found.values() for line in remedies(one) if "install distutils" in line]


def test_pip_is_not_proposed_for_a_python_of_the_system() -> None:
    facts = {**SAME, "d": {"pythons": [python(missing=["sklearn"], managed=True)]}}
    (found,) = judged(TOPIC, context(), facts)
    assert not [line for line in remedies(found) if "-m pip install" in line]


def test_a_missing_module_is_reported_with_the_version_that_the_others_have() -> None:
    facts = {**SAME, "d": {"pythons": [python(missing=["tensorflow", "sklearn"])]}}
    found = judged(TOPIC, context(), facts)
    assert hosts_by_signature(found) == {"modules_missing": ("d",)}
    assert fails(found[0])
    assert sentence(found[0]).startswith("worker:1 will fail on d: the program imports tensorflow, sklearn")
    assert remedies(found[0])[1].endswith("-m pip install tensorflow==2.21.0 scikit-learn")


def test_missing_module_is_a_note_if_setup_may_install_it() -> None:
    value = cluster(trainer=dataclasses.replace(cluster().trainer, setup="pip install -r requirements.txt"))
    facts = {**SAME, "c": {"pythons": [python(missing=["tensorflow"])]}, "d": {"pythons": [python("")]}}
    found = judged(TOPIC, context(value), facts)
    assert hosts_by_signature(found) == {"modules_to_come": ("c",), "python_to_come": ("d",)}
    assert not any(map(fails, found))


def test_without_a_python_a_task_cannot_start() -> None:
    found = judged(TOPIC, context(), {**SAME, "d": {"pythons": [python("")]}})
    assert hosts_by_signature(found) == {"python_missing": ("d",)}


def test_a_python_that_does_not_answer_is_reported_with_its_message() -> None:
    found = judged(TOPIC, context(), {**SAME, "d": {"pythons": [python(problem="No module named 'encodings'")]}})
    assert hosts_by_signature(found) == {"python_broken": ("d",)}
    assert "No module named 'encodings'" in sentence(found[0])


def test_the_host_that_differs_from_most_is_named() -> None:
    facts = {**SAME, "b": software(tensorflow="2.19.0", keras="3.15.1", tensorboard="2.21.0")}
    found = judged(TOPIC, context(), facts)
    assert hosts_by_signature(found) == {"framework_differs": ("b",)}
    assert "2.19.0 on b, 2.21.0 on a,c,d" in sentence(found[0])
    assert remedies(found[0]) == ["dtctl exec @b -- /usr/bin/python3 -m pip install tensorflow==2.21.0"]


def test_other_packages_and_pythons_that_differ_are_warnings() -> None:
    facts: dict[str, Any] = {**SAME, "a": software(tensorflow="2.21.0", keras="3.14.0", tensorboard="2.21.0")}
    facts["b"] = {"pythons": [dict(SAME["b"]["pythons"][0], version="3.9.2")]}
    found = judged(TOPIC, context(), facts)
    assert hosts_by_signature(found) == {"packages_differ": ("a",), "pythons_differ": ("b",)}
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
        (["fit", "mirrored_strategy"], {"tensorflow": "2.21.0", "keras": "3.15.1"}, "keras_3_fit"),
        (["fit", "mirrored_strategy", "keras_2"], {"tensorflow": "2.21.0", "keras": "3.15.1"}, None),
        (["mirrored_strategy"], {"tensorflow": "2.21.0", "keras": "3.15.1"}, None),
        (["summaries"], {"tensorflow": "2.21.0"}, "summaries_without_tensorboard"),
        (["summaries"], {"tensorflow": "2.21.0", "tensorboard": "2.21.0"}, None),
        (["summaries", "graphs"], {"tensorflow": "2.21.0"}, None),
        (["summaries"], {"torch": "2.2.0"}, None),
    ],
)
def test_known_traps_are_reported_before_they_snap(
    uses: list[str], packages: dict[str, str], signature: str | None
) -> None:
    found = judged(TOPIC, context(uses=uses), {host: software(**packages) for host in "abcd"})
    assert [one.signature.name for one in found] == ([signature] if signature else [])
    assert all(one.seen.hosts == ("a", "b", "c", "d") for one in found)


def test_import_error_is_reported() -> None:
    facts = {
        "c": {"pythons": [python(imported={"tensorflow": {"seconds": 3, "problem": "ImportError: libcuda.so.1"}})]}
    }
    found = judged(TOPIC, context(), facts)
    assert hosts_by_signature(found) == {"import_fails": ("c",)}
    assert "cannot import tensorflow: ImportError: libcuda.so.1" in sentence(found[0])


def test_what_python_path_says_of_the_code_is_left_out() -> None:
    trainer = Trainer(code=cluster().trainer.code, venv="venv")
    launch = Launch(command=("python", "train.py"), env={"PYTHONPATH": "/opt/lib"})
    value = cluster(job("worker", ["a"], [2222], launch=launch), trainer=trainer)
    asked = TOPIC.questions(context(value), Answers())["a"]["pythons"]
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
        (
            {"packages": {"tensorflow": "2.21.0"}, "imported": {"tensorflow": {"seconds": 9, "gpus": 0}}},
            "gpus_not_seen",
        ),
        ({"imported": {"torch": {"seconds": 9, "gpus": 1}, "json": {"seconds": 0}}}, None),
        ({}, None),
    ],
)
def test_gpus_that_would_stay_idle_are_reported(has: dict[str, Any], signature: str | None) -> None:
    jobs = [job("ps", ["a"], [2222]), job("worker", ["a"], [2223])]
    value = context(cluster(*jobs, hosts=[ssh_host("a", gpus=1)]))
    assert TOPIC.questions(value, Answers())["a"]["pythons"][0]["cuda"] is True
    found = judged(TOPIC, value, {"a": {"pythons": [python(**has)]}})
    assert [one.signature.name for one in found] == ([signature] if signature else [])
    assert all([str(task) for task in one.seen.tasks] == ["worker:0"] for one in found)


def needs(
    directory: Path, text: str, *args: str, command: tuple[str, ...] = ("python", "train.py"), **env: str
) -> Needs:
    (directory / "train.py").write_text(text)
    launch = Launch(command=command, args=args, env=env)
    value = cluster(job("worker", ["a"], [2222], launch=launch), trainer=Trainer(code=directory))
    return needs_of(plan_run(value, {"a": "a"}, local_python="python3")).get("worker", Needs())


def test_modules_of_the_standard_library_are_not_asked_for(tmp_path: Path) -> None:
    assert needs(tmp_path, "import os\nimport numpy\nimport tensorflow as tf\n").modules == ("numpy", "tensorflow")


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("spec = tf.estimator.EstimatorSpec(mode)", {"estimator"}),
        ("tf.compat.v1.estimator.train_and_evaluate()", {"estimator"}),
        ("my_tf.estimator.x", set()),
        ("tf.summary.scalar('loss', loss)", {"summaries"}),
        ("import tensorflow.compat.v1 as tf\ntf.summary.scalar('loss', loss)", {"summaries", "graphs"}),
        ("s = tf.distribute.ParameterServerStrategy(r)\nmodel.fit(data)", {"ps_strategy", "fit", "saves_sharded"}),
        ("import tf_keras\nmodel.fit(data)", {"keras_2", "fit"}),
        (
            "s = tf.distribute.MultiWorkerMirroredStrategy()\nmulti_worker_model.fit(data, epochs=3)",
            {"mirrored_strategy", "fit"},
        ),
        ("s = tf.distribute.experimental.MultiWorkerMirroredStrategy()", {"mirrored_strategy"}),
        ("scaler.fit(data)  # model.fit(data)", set()),
        ("tf.train.Saver(sharded=False)", {"saves_alone"}),
        ("tf.train.CheckpointOptions(experimental_io_device='/job:chief')", {"saves_alone"}),
        ("with tf.train.MonitoredTrainingSession() as session: pass", {"saves_sharded"}),
        ("import torch.distributed.checkpoint as dcp", {"saves_by_rank"}),
        ("from torch.distributed.checkpoint import save", {"saves_by_rank"}),
        ("engine, *_ = deepspeed.initialize(model=model)", {"deepspeed"}),
    ],
)
def test_uses_of_tensorflow_are_recognised_in_the_program(tmp_path: Path, text: str, used: set[str]) -> None:
    assert needs(tmp_path, text).uses == used


def test_logins_and_the_setup_may_ask_for_keras_2(tmp_path: Path) -> None:
    packages = {"tensorflow": "2.21.0", "keras": "3.15.1"}
    facts = {host: {"pythons": [python(packages=packages, legacy_keras=True)]} for host in "abcd"}
    assert judged(TOPIC, context(uses=["fit", "mirrored_strategy"]), facts) == []
    (tmp_path / "train.py").write_text("model.fit(data)")
    trainer = Trainer(code=tmp_path, setup="export TF_USE_LEGACY_KERAS=1")
    value = cluster(job("worker", ["a"], [2222]), trainer=trainer)
    assert "keras_2" in needs_of(plan_run(value, {"a": "a"}, local_python="python3"))["worker"].uses


@pytest.mark.parametrize("has", [{}, {"tf_keras": "2.21.0"}])
def test_keras_2_is_the_way_out_of_fit_under_a_mirrored_strategy(has: dict[str, str]) -> None:
    facts = {host: software(tensorflow="2.21.0", keras="3.15.1", **has) for host in "abcd"}
    (one,) = judged(TOPIC, context(uses=["fit", "mirrored_strategy"], brief=True), facts)
    assert "fit() under MultiWorkerMirroredStrategy does not work with Keras 3.15.1" in sentence(one)
    *install, variable = remedies(one)
    assert [line.endswith("-m pip install tf_keras") for line in install] == [True] * (not has)
    assert variable.startswith("trainer.env.TF_USE_LEGACY_KERAS: '1' in cluster.yaml")
    assert one.signature.stops


ARTICLE = """\
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

tf.app.flags.DEFINE_string("ps_hosts", "", "")
FLAGS = tf.app.flags.FLAGS

def main(_):
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(",")})
    server = tf.train.Server(cluster)
    with tf.device(tf.train.replica_device_setter(cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, 784])
        y = tf.contrib.layers.fully_connected(x, 10)

if __name__ == "__main__":
    tf.app.run()
"""


def test_each_name_of_tensorflow_1_is_found_by_file_and_line(tmp_path: Path) -> None:
    assert needs(tmp_path, ARTICLE).old == {
        "tf.examples": "train.py:2",
        "tf.app": "train.py:4",
        "tf.train.Server": "train.py:9",
        "tf.train.replica_device_setter": "train.py:10",
        "tf.placeholder": "train.py:11",
        "tf.contrib": "train.py:12",
    }


@pytest.mark.parametrize(
    "text",
    [
        "import tensorflow.compat.v1 as tf\ntf.app.run()",
        "import tensorflow as tf\ntf = tf.compat.v1\ntf.app.run()",
        "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\ntf.app.run()",
        "import tensorflow as tf\nif tf.__version__.startswith('1.'):\n    tf.set_random_seed(1)",
        "import tensorflow as tf\ntry:\n    tf.app.run()\nexcept AttributeError:\n    tf.compat.v1.app.run()",
        "import tensorflow as tf\ntf.compat.v1.app.run()\ntf.train.Checkpoint()\ntf.keras.layers.Dense(1)",
        "from tensorflow import keras\nkeras.layers.Dense(1)",
        "import tensorflow_probability as tf\ntf.layers.dense(1)",
        "import tensorflow as tf\ndef train(tf):\n    tf.app.run()\ntrain(tf.compat.v1)",
    ],
)
def test_programs_for_both_and_for_tensorflow_2_have_no_old_names(tmp_path: Path, text: str) -> None:
    assert needs(tmp_path, text).old == {}


def test_the_program_of_an_article_is_refused_with_what_helps_for_each(tmp_path: Path) -> None:
    value = context(brief=True)
    value = dataclasses.replace(value, needs=dict.fromkeys(("ps", "worker"), needs(tmp_path, ARTICLE)))
    (one,) = judged(TOPIC, value, {host: software(tensorflow="2.21.0") for host in "abcd"})
    assert one.signature.stops
    assert (
        "which lacks tf.examples (train.py:2), tf.app (train.py:4), tf.train.Server (train.py:9), "
        "tf.train.replica_device_setter (train.py:10), tf.placeholder (train.py:11), 1 more"
    ) in sentence(one)
    moved, contrib, examples, older = remedies(one)
    assert moved.startswith(
        "in train.py: import tensorflow.compat.v1 as tf, then tf.disable_v2_behavior()    has tf.app,"
    )
    assert contrib.startswith("tf.contrib (train.py:12): ")
    assert examples.startswith("tf.examples (train.py:2): ")
    assert "1.15" in older
    assert not judged(TOPIC, value, {host: software(tensorflow="1.15.5") for host in "abcd"})


@pytest.mark.parametrize(("args", "how"), [((), "saves_alone"), (("--sharded",), "saves_sharded")])
def test_a_flag_decides_where_the_text_leaves_it_to_one(tmp_path: Path, args: tuple[str, ...], how: str) -> None:
    text = "saver = tf.train.Saver(sharded=FLAGS.sharded)\nwith tf.train.MonitoredTrainingSession(): pass\n"
    assert needs(tmp_path, text, *args).uses == {"saves_as_told", how}


def test_the_environment_may_ask_for_keras_2(tmp_path: Path) -> None:
    assert "keras_2" in needs(tmp_path, "model.fit(data)", TF_USE_LEGACY_KERAS="1").uses


@pytest.mark.parametrize("template", sorted(Path("templates").glob("*/train.py")), ids=lambda path: path.parent.name)
def test_no_template_has_a_known_trap(template: Path, tmp_path: Path) -> None:
    value = cluster(job("worker", ["a"], [2222]), trainer=Trainer(code=template.parent.absolute()))
    value = dataclasses.replace(value, name="own")
    uses = needs_of(plan_run(value, {"a": "a"}, local_python="python3"))["worker"].uses
    assert "keras_2" in uses or "fit" not in uses or not uses & {"ps_strategy", "mirrored_strategy"}
    assert "saves_sharded" not in uses or "saves_as_told" in uses


def imports_of(directory: Path, *args: str, **files: str) -> tuple[str, ...] | None:
    for name, text in files.items():
        file = directory / name.replace("__slash__", "/").replace("_py", ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    program = program_of(["python", *args], directory)
    return None if program is None else program.modules


def test_modules_of_its_own_are_followed(tmp_path: Path) -> None:
    files = {"train_py": "import data\nfrom nets.big import net\n", "data_py": "import numpy\n"}
    more = {"nets__slash____init___py": "import keras\n", "nets__slash__big_py": "import torch\nimport data\n"}
    assert imports_of(tmp_path, "train.py", **files, **more) == ("keras", "numpy", "torch")


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import horovod\nexcept ImportError:\n    pass\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import horovod\n",
        "def late():\n    import horovod\n",
        "try:\n    import horovod\nexcept ImportError:\n    install()\nimport horovod\n",
    ],
)
def test_optional_import_is_not_required(tmp_path: Path, text: str) -> None:
    assert "horovod" not in (imports_of(tmp_path, "train.py", train_py=text) or ())


@pytest.mark.parametrize(
    ("args", "files"),
    [
        (("-m", "pkg.train"), {"pkg__slash__train_py": "import numpy\n"}),
        (("-u", "train.py"), {"train_py": "import numpy\n"}),
        (("src/train.py",), {"src__slash__train_py": "import near\nimport numpy\n", "src__slash__near_py": ""}),
    ],
)
def test_the_program_is_found_as_python_finds_it(tmp_path: Path, args: tuple[str, ...], files: dict[str, str]) -> None:
    assert imports_of(tmp_path, *args, **files) == ("numpy",)


@pytest.mark.parametrize(
    ("args", "text"),
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
def test_undeterminable_program_is_not_checked(tmp_path: Path, args: tuple[str, ...], text: str) -> None:
    assert imports_of(tmp_path, *args, train_py=text) is None


def test_modules_of_the_code_on_the_path_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mine.py").touch()
    (tmp_path / "src" / "fast.cpython-311-x86_64-linux-gnu.so").touch()
    (tmp_path / "train.py").write_text("import mine\nimport fast\nimport absent\n")
    program = program_of(["python", "train.py"], tmp_path, [tmp_path / "src"])
    assert program is not None
    assert program.modules == ("absent",)


def test_a_syntax_error_has_its_line_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("open('ran', 'w')\n\nif True\n    pass\n")
    assert broken_line(["python", "-u", "train.py"], tmp_path) == ("train.py", 3, "expected ':'")
    assert not (tmp_path / "ran").exists()
