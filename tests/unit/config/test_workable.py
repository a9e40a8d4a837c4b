"""What can be read, and still cannot work: found with its place before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.config import check_cluster, load_cluster
from dtctl.errors import ConfigError, Problem

FILE = Path("cluster.yaml")
TEXT = """\
name: demo
hosts: {"gpu-[1-2]": {gpus: 2}, cpu: }
JOBS
trainer:
  command: [python, train.py]
"""


@pytest.fixture(autouse=True)
def _in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def told(problems: tuple[Problem, ...]) -> list[str]:
    return [f"{one.place.line}:{one.place.column}: {one.summary} | {one.hint}" for one in problems]


def look(jobs: str, more: str = "") -> tuple[list[str], list[str]]:
    """Mistakes and doubts."""
    FILE.write_text(TEXT.replace("JOBS", jobs) + more)
    checked = check_cluster(FILE)
    try:
        checked.findings.or_raise()
    except ConfigError as error:
        return told(error.problems), told(error.doubts)
    return [], told(checked.findings.doubts)


def test_invalid_values_and_impossible_plans_are_reported_together() -> None:
    FILE.write_text(
        TEXT.replace("JOBS", "jobs: {ps: {hosts: cpu}}") + "  code: x\n  args: ['{output_dir}']\nname2: x\n"
    )
    with pytest.raises(ConfigError) as caught:
        check_cluster(FILE)
    lines = [one.partition(" | ")[0] for one in told(caught.value.problems)]
    assert lines == [
        "3:8: no job leads: ps:0 would, and a ps never ends",
        f"6:9: trainer.code is 'x', but there is no directory {Path.cwd()}/x",
        "7:10: trainer.args[0]: {output_dir} has no value, because dirs.output is not set",
        "8:1: name2 is not a key here",
    ]


def test_what_a_mistake_leaves_out_is_not_missed_by_later_ones() -> None:
    FILE.write_text(TEXT.replace("JOBS", "jobs: {ps: {hosts: cpu}, worker: 3}") + "  args: ['{data_dir}']\ndirs: 7\n")
    with pytest.raises(ConfigError) as caught:
        check_cluster(FILE)
    assert [one.place.line for one in caught.value.problems] == [3, 7]


def test_commands_about_a_run_need_neither_its_code_nor_its_secrets_here() -> None:
    FILE.write_text(TEXT.replace("JOBS", "jobs: {worker: {hosts: cpu}}") + "  code: x\n  env_file: y\n")
    assert load_cluster(FILE, needs_files=False).trainer.env_file == Path.cwd() / "y"
    with pytest.raises(ConfigError, match="2 problems"):
        load_cluster(FILE)


CALL = "call the job that trains worker or chief; or write it first, and its task 0 leads"
NAMES: dict[str, tuple[str, str]] = {
    "jobs:\n  ps: {hosts: cpu}\n  wrker: {hosts: cpu}": (
        "5:3: jobs.wrker: no job leads: ps:0 would, and a ps never ends | did you mean 'worker'?",
        "",
    ),
    "jobs: {ps: {hosts: cpu}, learner: {hosts: cpu}}": (
        f"3:8: no job leads: ps:0 would, and a ps never ends | {CALL}",
        "",
    ),
    "jobs: {trainer: {hosts: cpu}}": ("", ""),
    "jobs: {evaluator: {hosts: cpu}}": ("", ""),
    "jobs: {chief: {hosts: cpu}, data: {hosts: cpu}}": ("", ""),
    "jobs: {worker: {hosts: cpu}, worker2: {hosts: cpu}}": ("", ""),
    "jobs: {learner: {hosts: cpu}, actor: {hosts: cpu}}": (
        "",
        "3:8: no job is called worker, chief or master: learner:0, of the first job, leads | "
        "call the job that leads worker or chief, if it is another",
    ),
    "jobs: {workers: {hosts: cpu}}": (
        "",
        "3:8: no job is called worker, chief or master: workers:0, of the first job, leads | did you mean 'worker'?",
    ),
    "jobs: {worker: {hosts: cpu}, evaluater: {hosts: cpu}}": (
        "",
        "3:30: jobs.evaluater: dtctl knows no job of this name, so its tasks have no part in the way of training | "
        "did you mean 'evaluator'?",
    ),
}


@pytest.mark.parametrize("jobs", NAMES)
def test_names_of_jobs_that_lead_or_look_like_it(jobs: str) -> None:
    mistake, doubt = NAMES[jobs]
    assert look(jobs) == ([mistake] if mistake else [], [doubt] if doubt else [])


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("  args: {out: '{output_dir}'}\n", "6:15: trainer.args.out"),
        ("  args: ['--out={output_dir}']\n", "6:10: trainer.args[0]"),
        ("  env: {OUT: '{output_dir}/x'}\n", "6:14: trainer.env.OUT"),
    ],
)
def test_an_unknown_directory_field_stays_literal_and_is_a_mistake(more: str, place: str) -> None:
    mistakes, doubts = look("jobs: {worker: {hosts: cpu}}", more)
    assert [line.split(": {")[0] for line in mistakes] == [place]
    assert "{output_dir} has no value, because dirs.output is not set" in mistakes[0]
    assert doubts == []
    assert look("jobs: {worker: {hosts: cpu}}", f"{more}dirs: {{output: out}}\n") == ([], [])


def test_a_field_that_is_a_letter_away_is_asked_about_and_other_braces_are_the_users() -> None:
    _, doubts = look("jobs: {worker: {hosts: cpu}}", "  args: {a: '{task_idx}', b: '{\"x\": 1}', c: '{lr}'}\n")
    assert doubts == ["6:13: trainer.args.a: {task_idx} is no field, and stays as it is | did you mean '{task_index}'?"]
    _, doubts = look("jobs: {worker: {hosts: cpu, command: [x, '{worker_hosts|space}']}}")
    assert doubts == [
        "3:42: jobs.worker.command[1]: {worker_hosts|space} stays as it is: only `template` joins lists | "
        "write {worker_hosts} here, or use `template`"
    ]


def test_hosts_with_too_few_gpus_are_reported_once_with_the_most_that_fits() -> None:
    jobs = 'jobs:\n  ps: {hosts: gpu-1}\n  worker: {hosts: "gpu-[1-2]", tasks_per_host: 2, gpus_per_task: 2}'
    mistakes, _ = look(jobs)
    assert mistakes == [
        "5:66: jobs.worker: gpu-[1-2] has 2 GPUs each, too few for its tasks: 2 of worker want 2 each | "
        "gpus_per_task: 1 is the most for worker there; or place some of its tasks elsewhere"
    ]


def test_tasks_that_share_more_gpus_than_there_are_is_a_mistake_at_the_job() -> None:
    mistakes, _ = look("jobs: {worker: {hosts: gpu-1, tasks_per_host: 3}}")
    assert mistakes == [
        "3:8: jobs.worker: gpu-1 has 2 GPUs, too few for its tasks: 3 of worker share them | "
        "place its tasks elsewhere, or set gpus_per_task: 0, which hides the GPUs from them"
    ]
    assert look("jobs: {worker: {hosts: gpu-1, tasks_per_host: 2}}") == ([], [])


def test_undeclared_gpus_are_queried_and_missing_ones_are_a_mistake() -> None:
    jobs = "jobs: {worker: {hosts: cpu, gpus_per_task: 1}}"
    assert look(jobs)[1] == [
        "3:44: jobs.worker.gpus_per_task does nothing on cpu, which no `gpus` is said of | "
        "write under hosts how many there are: gpus: 1"
    ]
    FILE.write_text(TEXT.replace("JOBS", jobs).replace("cpu: }", "cpu: {gpus: 0}}"))
    with pytest.raises(ConfigError, match="1 problem") as caught:
        check_cluster(FILE).findings.or_raise()
    assert "cpu has no GPU, too few for its tasks: 1 of worker want 1 each" in caught.value.problems[0].summary


def test_commands_about_a_run_that_is_there_take_the_file_as_it_is() -> None:
    FILE.write_text(TEXT.replace("JOBS", "jobs: {ps: {hosts: cpu}, wrker: {hosts: cpu}}"))
    assert str(load_cluster(FILE).lead) == "ps:0"


def test_the_example_and_every_template_raise_no_doubt() -> None:
    root = Path(__file__).resolve().parents[3]
    for file in (root / "cluster.yaml.example", *root.glob("templates/*/cluster.yaml")):
        checked = check_cluster(file)
        checked.findings.or_raise()
        assert checked.findings.doubts == (), file
