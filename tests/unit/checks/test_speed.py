"""A slow host is named with what differs there, and a figure stands out by one rule."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.check.records import SpeedFacts
from dtctl.operations.findings import fails
from dtctl.rooms.check import Answers, Line
from dtctl.rooms.check.speed import TOPIC, least_usual
from tests.unit.checks.contexts import context, hosts_by_signature, judged, machine, sentence

DEEP = context(deep=True)


def fast(flops: float = 100e9, copied: float = 5e9, cpus: int = 8, stolen: float = 0.0, **fields: Any) -> SpeedFacts:
    own = {**machine()["machine"], "cpus": cpus, "stolen": stolen}
    return checked(
        SpeedFacts, {"kind": "numpy", "flops": flops, "copied_bytes": copied, "machine": own, "model": "EPYC", **fields}
    )


def found(**facts: SpeedFacts) -> Any:
    return judged(TOPIC, DEEP, {}, facts)


def test_a_slow_host_is_named_with_what_takes_its_processors() -> None:
    taker = {"pid": 7, "name": "stress", "user": "ada", "cpu": 3.5}
    one = found(a=fast(), b=fast(), c=fast(), d=fast(50e9, busy=[taker]))
    assert hosts_by_signature(one) == {"host_computes_slowly": ("d",)}
    assert sentence(one[0]) == (
        "d computes at 50 GFLOP/s, the others at 100 GFLOP/s: synchronous training will wait for it; "
        "stress of ada (pid 7) takes 3.5 of them"
    )
    assert not fails(one[0])


def test_other_processors_and_a_greedy_machine_below_explain_it() -> None:
    one = found(a=fast(), b=fast(), c=fast(), d=fast(50e9, model="Atom", cpus=4, stolen=0.2, governor="powersave"))
    text = sentence(one[0])
    assert "its processors are Atom, theirs EPYC" in text
    assert "it has 4 processors, they have 8" in text
    assert "20 % of them go to other guests of its machine" in text


def test_a_host_that_could_not_be_measured_is_reported() -> None:
    one = found(a=fast(), b=fast(0, kind="", problem="it did not answer within 64 s"))
    assert hosts_by_signature(one) == {"speed_not_measured": ("b",)}


def gpu(number: int, flops: float = 19e12, name: str = "A100", **fields: Any) -> dict[str, Any]:
    return {"gpu": number, "name": name, "flops": flops, "clock_mhz": 1410, "degrees": 60, "lanes": 16, **fields}


def test_the_framework_that_the_programs_import_multiplies_on_gpus() -> None:
    for modules, framework in ((["tensorflow"], "tensorflow"), (["numpy", "torch"], "torch"), (["numpy"], "")):
        asked = TOPIC.questions(context(deep=True, modules=modules), Answers([{}]))
        assert {one["framework"] for one in asked.values()} == {framework}


def test_a_slow_gpu_is_named_with_what_is_different_about_it() -> None:
    slow = gpu(1, 8e12, clock_mhz=600, degrees=91, lanes=4)
    one = found(a=fast(gpus=[gpu(0), slow]), b=fast(gpus=[gpu(0), gpu(1, 18e12)]))
    assert hosts_by_signature(one) == {"gpu_computes_slowly": ("a",)}
    assert sentence(one[0]) == (
        "GPU 1 of a (A100) computes at 8 TFLOP/s, others of its kind at 19 TFLOP/s; its clock is at 600 MHz, "
        "theirs at 1410; it has 4 lanes to its host, they have 16; it is at 91 degrees, they are at 60"
    )


def test_gpus_that_the_framework_does_not_see_are_reported() -> None:
    one = found(a=fast(gpus=[gpu(0)]), b=fast(gpu_problem="tensorflow sees none of them"))
    assert hosts_by_signature(one) == {"gpus_not_measured": ("b",)}
    assert sentence(one[0]) == "the GPUs of b could not be measured: tensorflow sees none of them"


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ({"flops": 80e9}, None),
        ({"flops": 79e9}, "host_computes_slowly"),
        ({"copied": 4e9}, None),
        ({"copied": 3.9e9}, "host_copies_slowly"),
        ({"flops": 79e9, "copied": 1e9}, "host_computes_slowly"),
    ],
)
def test_slow_is_less_than_four_fifths_of_the_middle_of_the_others(own: dict[str, Any], name: str | None) -> None:
    one = found(a=fast(), b=fast(), c=fast(900e9, 90e9), d=fast(**own))
    assert hosts_by_signature(one) == ({name: ("d",)} if name else {})


def fields(own: SpeedFacts, *others: SpeedFacts) -> dict[str, Any]:
    """What is reported beside its speed."""
    (one,) = found(**{f"h{n}": other for n, other in enumerate(others or (fast(), fast()))}, d=own)
    speeds = ("own_flops", "usual_flops", "own_bytes", "usual_bytes")
    return {name: value for name, value in one.seen.fields.items() if name not in speeds}


SLOWLY: dict[str, Any] = {"flops": 1e9}


def test_equal_properties_are_not_reported_as_differences() -> None:
    assert fields(fast(**SLOWLY)) == {}
    assert fields(fast(**SLOWLY, cpus=16)) == {}
    assert fields(fast(**SLOWLY, stolen=0.049)) == {}
    assert fields(fast(**SLOWLY, stolen=0.05)) == {"stolen_share": 0.05}
    assert fields(fast(**SLOWLY, cpus=7)) == {"cpus": 7, "usual_cpus": 8}


def test_another_model_explains_it_where_all_others_have_one_and_it_is_known() -> None:
    atom = fast(**SLOWLY, model="Atom")
    assert fields(atom) == {"model": "Atom", "usual_model": "EPYC"}
    assert fields(atom, fast(), fast(model="Xeon")) == {}
    assert fields(atom, fast(model=""), fast(model="")) == {}
    assert fields(fast(**SLOWLY, model="")) == {}
    assert fields(fast(**SLOWLY, governor="powersave")) == {}, "nobody knows that of the others"


def test_hosts_that_could_not_be_measured_are_reported_by_what_was_in_the_way() -> None:
    none: dict[str, Any] = {"flops": 0.0, "kind": ""}
    late = fast(**none, problem="late")
    one = found(a=fast(problem="late"), b=late, c=fast(**none), d=late)
    assert [(each.seen.hosts, each.seen.fields["said"]) for each in one] == [
        (("b", "d"), "late"),
        (("c",), "it has no Python"),
    ]


def test_figures_are_reported_by_host_only_after_the_second_round() -> None:
    def lines(*rounds: Any) -> dict[str, Any]:
        return {one.what: one.values for one in TOPIC.lines(DEEP, Answers(rounds)) if isinstance(one, Line)}

    names = ("processors are", "multiplies at_flops", "copies a second_bytes", "its GPUs multiply at_flops")
    assert lines({"a": fast()}) == {name: {} for name in names}
    assert judged(TOPIC, DEEP, {"a": fast(), "b": fast(1e9)}) == []
    assert lines({}, {"a": fast(), "b": fast(0.0, 0.0, kind="")}) == {
        "processors are": {"a": "EPYC", "b": "EPYC"},
        "multiplies at_flops": {"a": 100e9, "b": None},
        "copies a second_bytes": {"a": 5e9, "b": None},
        "its GPUs multiply at_flops": {"a": None, "b": None},
    }


BUSY = [429.0, 670.0, 1292.0, 430.0, 1497.0, 811.0, 796.0]
"""MB a second, as seven hosts of one machine sent them at a load of 28; an eighth behind 80 Mbit/s sent 9.6."""


def test_with_widely_varying_figures_only_a_far_outlier_is_slow() -> None:
    assert 9.6 < least_usual(BUSY) < min(BUSY)
    assert all(figure >= least_usual([one for one in BUSY if one != figure]) for figure in BUSY)


def test_without_measurements_nothing_is_slow() -> None:
    assert least_usual([0.0, 0.0]) == 0.0
