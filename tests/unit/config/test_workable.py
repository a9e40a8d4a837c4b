"""What can be read, and still cannot work, or would push a home directory: found before anything is started."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

import pytest

from dtctl.config.load import check_cluster, load_cluster
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


def located(problems: tuple[Problem, ...]) -> list[str]:
    return [f"{one.place.line}:{one.place.column}: {one.summary} | {one.hint}" for one in problems]


def look(jobs: str, more: str = "") -> tuple[list[str], list[str]]:
    """Mistakes and doubts."""
    FILE.write_text(TEXT.replace("JOBS", jobs) + more)
    checked = check_cluster(FILE)
    try:
        checked.findings.or_raise()
    except ConfigError as error:
        return located(error.problems), located(error.doubts)
    return [], located(checked.findings.doubts)


def test_invalid_values_and_impossible_plans_are_reported_together() -> None:
    FILE.write_text(
        TEXT.replace("JOBS", "jobs: {ps: {hosts: cpu}}") + "  code: x\n  args: ['{output_dir}']\nname2: x\n"
    )
    with pytest.raises(ConfigError) as caught:
        check_cluster(FILE)
    lines = [one.partition(" | ")[0] for one in located(caught.value.problems)]
    assert lines == [
        "3:8: no job leads: ps:0 would, and a ps never ends",
        f"6:9: trainer.code is 'x', but there is no directory {Path.cwd()}/x",
        "7:10: trainer.args[0]: {output_dir} has no value, because dirs.output is not set",
        "8:1: name2 is not a key here",
    ]


def test_a_mistake_causes_no_further_errors() -> None:
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
        "3:30: jobs.evaluater: dtctl knows no job of this name, so the strategy does not cover its tasks | "
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
        "3:44: jobs.worker.gpus_per_task does nothing on cpu, for which `gpus` is not set | "
        "write under hosts how many there are: gpus: 1"
    ]
    FILE.write_text(TEXT.replace("JOBS", jobs).replace("cpu: }", "cpu: {gpus: 0}}"))
    with pytest.raises(ConfigError, match="1 problem") as caught:
        check_cluster(FILE).findings.or_raise()
    assert "cpu has no GPU, too few for its tasks: 1 of worker want 1 each" in caught.value.problems[0].summary


def test_commands_about_a_run_that_is_there_take_the_file_as_it_is() -> None:
    FILE.write_text(TEXT.replace("JOBS", "jobs: {ps: {hosts: cpu}, wrker: {hosts: cpu}}"))
    assert str(load_cluster(FILE).lead) == "ps:0"


def test_data_that_is_not_on_this_machine_is_a_doubt() -> None:
    text = "jobs: {worker: {hosts: cpu}}\ndirs: {data: /data}\ndata: {from: nowhere}"
    assert look(text) == (
        [],
        [
            f"5:14: data.from is 'nowhere', but there is no directory {Path.cwd() / 'nowhere'} | "
            "a relative path begins at this file; dtctl data push    needs it"
        ],
    )


def test_the_example_and_every_template_raise_no_doubt() -> None:
    root = Path(__file__).resolve().parents[3]
    for file in (root / "cluster.yaml.example", *root.glob("templates/*/cluster.yaml")):
        checked = check_cluster(file)
        checked.findings.or_raise()
        assert checked.findings.doubts == (), file


AROUND = "name: digits\nhosts: {a: 10.0.0.1}\njobs: {worker: {hosts: [a]}}\ntrainer:\n  command: [python, train.py]\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home" / "me"
    (home / "project" / "conf").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    return home


def load(file: Path, code: str, also: str = "") -> Path:
    file.write_text(AROUND + f"  code: {code}\n{also}")
    return load_cluster(file).trainer.code


def refused(file: Path, code: str) -> str:
    with pytest.raises(ConfigError) as error:
        load(file, code)
    [problem] = error.value.problems
    assert (problem.place.line, problem.place.column) == (6, 9)
    assert "send_anywhere: true" in problem.hint
    return problem.summary


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("~/", "which is a home directory"),
        ('"~"', "which is a home directory"),
        ("HOME", "which is a home directory"),
        ("~/..", "which is above the home directory"),
        ("/", "which is above the home directory"),
        ("..", "which is a home directory"),
        ("./../project/..", "which is a home directory"),
        ("link", "which is a home directory"),
        ("link/..", "which is above the home directory"),
    ],
)
def test_a_home_directory_is_refused_by_whatever_way_it_is_named(home: Path, code: str, expected: str) -> None:
    (home / "project" / "link").symlink_to(home)
    summary = refused(home / "project" / "cluster.yaml", code.replace("HOME", str(home)))
    assert expected in summary
    assert "all of it would be sent" in summary


def test_a_directory_above_the_cluster_file_is_refused(home: Path) -> None:
    summary = refused(home / "project" / "conf" / "cluster.yaml", "..")
    assert f"which is above the directory of this file, {home}/project/conf" in summary


def test_a_cluster_file_in_a_home_directory_does_not_push_it(home: Path) -> None:
    assert "a home directory" in refused(home / "cluster.yaml", ".")
    (home / "cluster.yaml").write_text(AROUND)  # `.` if left out
    with pytest.raises(ConfigError, match="1 problem"):
        load_cluster(home / "cluster.yaml")


@pytest.mark.parametrize("code", [".", "conf", "../other", "~/other"])
def test_a_directory_of_a_project_is_fine(home: Path, code: str) -> None:
    (home / "other").mkdir()
    assert load(home / "project" / "cluster.yaml", code).is_dir()


@pytest.mark.parametrize("code", ["~/", "..", "/"])
def test_trainer_code_elsewhere_allows_a_file_in_a_home(home: Path, code: str) -> None:
    load(home / "project" / "cluster.yaml", code, "  code_anywhere: true\n")
    with pytest.raises(ConfigError):
        load(home / "project" / "cluster.yaml", code, "  code_anywhere: false\n")


def test_an_override_on_the_command_line_is_refused_too(home: Path) -> None:
    (home / "project" / "cluster.yaml").write_text(AROUND)
    with pytest.raises(ConfigError) as error:
        load_cluster(home / "project" / "cluster.yaml", overrides=["trainer.code=~/"])
    assert "a home directory" in error.value.problems[0].summary


def test_the_home_of_the_system_counts_when_the_environment_names_another(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = list(pwd.getpwuid(os.geteuid()))
    monkeypatch.setattr(pwd, "getpwuid", lambda user: pwd.struct_passwd([*entry[:5], str(home), entry[6]]))
    for elsewhere in ("/nonexistent", "", "relative"):
        monkeypatch.setenv("HOME", elsewhere)
        assert "a home directory" in refused(home / "project" / "cluster.yaml", "..")


def test_a_user_without_an_entry_has_no_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.delenv("HOME")
    assert load(home / "project" / "cluster.yaml", "conf") == home / "project" / "conf"


@pytest.mark.parametrize("reason", [errno.EACCES, errno.EIO])
def test_an_unreadable_directory_is_not_reported_as_absent(
    home: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    look = Path.stat

    def refuse(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.name == "closed":
            raise OSError(reason, os.strerror(reason), os.fspath(path))
        return look(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(ConfigError) as error:
        load(home / "project" / "cluster.yaml", "closed")
    place = home / "project" / "closed"
    assert [problem.summary for problem in error.value.problems] == [
        f"trainer.code is 'closed', but {place} cannot be read: {os.strerror(reason)}"
    ]


def test_a_loop_of_links_is_no_directory(home: Path) -> None:
    (home / "project" / "loop").symlink_to("loop")
    with pytest.raises(ConfigError) as error:
        load(home / "project" / "cluster.yaml", "loop")
    assert "but there is no directory" in error.value.problems[0].summary


@pytest.mark.parametrize(
    "place", [".aws", ".ssh", ".config/gcloud", ".kube", ".gnupg/private-keys-v1.d", "keys/.AWS/x"]
)
def test_a_directory_of_secrets_is_refused_as_code(home: Path, place: str) -> None:
    (home / place).mkdir(parents=True)
    (home / "project" / "link").symlink_to(home / place)
    for code in (f"~/{place}", "link"):
        assert "where secrets usually are" in refused(home / "project" / "cluster.yaml", code)
    load(home / "project" / "cluster.yaml", f"~/{place}", "  code_anywhere: true\n")


def test_a_pipe_that_hides_the_exit_code_of_a_trainer_is_doubted() -> None:
    """Whether a failure without a traceback was one cannot be seen afterwards."""
    job = "jobs: {worker: {hosts: cpu, command: [bash, -c, '%spython train.py | tee log']}}"
    mistakes, [doubt] = look(job % "")
    assert mistakes == []
    assert "jobs.worker.command ends with the exit code of the last program of a pipe, not of the trainer" in doubt
    assert "set -o pipefail" in doubt
    assert look(job % "set -o pipefail; ") == ([], [])
