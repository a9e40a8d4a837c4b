"""The file `checkpoint`, with a checkpoint that is to be the newest."""

from __future__ import annotations

import pytest

from dtctl.agent.checkpoints.formats import restored_name, with_newest

TF1 = """\
model_checkpoint_path: "/out/model.ckpt-9"
all_model_checkpoint_paths: "/out/model.ckpt-8"
all_model_checkpoint_paths: "/out/model.ckpt-9"
"""
TF2 = """\
model_checkpoint_path: "ckpt-2"
all_model_checkpoint_paths: "ckpt-1"
all_model_checkpoint_paths: "ckpt-2"
all_model_checkpoint_timestamps: 10.5
all_model_checkpoint_timestamps: 11.5
last_preserved_timestamp: 9.5
"""


def lines(text: str) -> list[str]:
    assert text.endswith("\n")
    return text.splitlines()


def test_the_first_one_is_named_and_has_no_time_after_which_it_would_be_removed() -> None:
    assert lines(with_newest("", "m-5", 20.0)) == ['model_checkpoint_path: "m-5"', 'all_model_checkpoint_paths: "m-5"']


def test_those_of_before_stay_listed_in_whatever_way_their_paths_are_written() -> None:
    assert lines(with_newest(TF1, "m-5", 20.0)) == [
        'model_checkpoint_path: "m-5"',
        'all_model_checkpoint_paths: "/out/model.ckpt-8"',
        'all_model_checkpoint_paths: "/out/model.ckpt-9"',
        'all_model_checkpoint_paths: "m-5"',
    ]


def test_each_path_keeps_its_time() -> None:
    assert lines(with_newest(TF2, "m-5", 20.0))[-4:] == [
        "all_model_checkpoint_timestamps: 10.5",
        "all_model_checkpoint_timestamps: 11.5",
        "all_model_checkpoint_timestamps: 20.0",
        "last_preserved_timestamp: 9.5",
    ]


def test_one_that_was_listed_before_is_listed_once_as_the_newest() -> None:
    told = lines(with_newest(TF2, "ckpt-1", 20.0))
    assert told[:3] == [
        'model_checkpoint_path: "ckpt-1"',
        'all_model_checkpoint_paths: "ckpt-2"',
        'all_model_checkpoint_paths: "ckpt-1"',
    ]
    assert told[3:5] == ["all_model_checkpoint_timestamps: 11.5", "all_model_checkpoint_timestamps: 20.0"]


@pytest.mark.parametrize("text", ["\0\1", "model_checkpoint_path: x\n}{\n", 'something_else: "y"\n'])
def test_what_tensorflow_would_not_read_is_left_out(text: str) -> None:
    assert with_newest(text, "m-5", 20.0) == with_newest("", "m-5", 20.0)


@pytest.mark.parametrize(("text", "name"), [(TF1, "model.ckpt-9"), (TF2, "ckpt-2"), ("", None), ("x", None)])
def test_the_one_that_is_to_be_restored(text: str, name: str | None) -> None:
    assert restored_name(text) == name
