"""The sections that describe what runs: `jobs` and `trainer`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dtctl.config import values as v
from dtctl.config.sections.base import REQUIRED, Section


class LaunchKeys(Section):
    """What a trainer process gets."""

    command: v.Words | None = Field(
        default=None,
        description="the program and its first words; a leading `python` is the interpreter that `python` or `venv` "
        "names",
        examples=["[python, train.py]"],
    )
    args: v.Args | None = Field(
        default=None,
        description="flags of the trainer: `{batch_size: 128}` is `--batch_size=128`, `true` gives the bare flag, "
        "`false` or nothing leaves it out, a list is joined with commas; or a plain list of words",
        examples=["{batch_size: 128, augment: true}"],
    )
    dialect: v.Dialect | None = Field(
        default=None,
        description="how the trainer learns its place: `flags` (`--ps_hosts --worker_hosts --job_name --task_index`), "
        "`tf_config` (the variable `TF_CONFIG`), `tensorflow` (both), `template`, the variables of another "
        "framework ([dialects.md](dialects.md)), or `none`; `tensorflow` if left out",
        examples=["flags"],
    )
    template: v.Template | None = Field(
        default=None,
        description="words with {fields}, for a trainer with flags of its own; `{ps_hosts|space}` makes a word of each "
        "address; implies `dialect: template`",
        examples=['["--servers={ps_hosts}", "--index={task_index}"]'],
    )
    platform: v.Platform | None = Field(
        default=None,
        description="hands over the directories of `dirs` and the number of GPUs: `flags` as `--data_dir --output_dir "
        "--work_dir --log_dir --num_gpus`, those that are set; `env` as the variables `DATA_DIR` and so on; or a list "
        "of such names. `num_gpu` is another name for `num_gpus`; what `args` or `env` say themselves wins",
        examples=["[data_dir, num_gpu, OUTPUT_DIR]"],
    )
    env: v.Env = Field(
        default={},
        description="variables; their values are passed on as written",
        examples=["{TF_CPP_MIN_LOG_LEVEL: 1}"],
    )


class JobEntry(LaunchKeys):
    """A named group of tasks. Its name becomes part of the trainers' flags (`--ps_hosts`). `command`, `args`,
    `dialect`, `template`, `platform` and `env` stand over those of `trainer`: mappings are merged key by key, anything
    else is replaced."""

    where: ClassVar[str] = "jobs.NAME"

    hosts: v.HostList = Field(
        default=[],
        description="where its tasks run, in the order of their indexes; a host that is named twice runs two",
        examples=['"gpu-[1-4]"'],
        json_schema_extra=REQUIRED,
    )
    tasks_per_host: v.TasksPerHost = Field(
        default=1, description="how many tasks run on each of them, with neighbouring indexes", examples=["2"]
    )
    port: v.Port | None = Field(
        default=None,
        description="where its first task on a machine listens; its next task there takes the next port. If left out, "
        "each task takes the first port from `ports` on that no other task of the machine has",
        examples=["2222"],
    )
    gpus_per_task: v.Gpus | None = Field(
        default=None,
        description="GPUs that each task sees; if left out, none for `ps` and `evaluator`, and an even share of the "
        "host's for the others",
        examples=["1"],
    )
    depends_on: v.JobList | None = Field(
        default=None,
        description="jobs that have to be ready before it starts, `[]` for none; if left out, it starts at once, and "
        "needs whom the way of training says: [recovery.md](recovery.md)",
        examples=["[ps]"],
    )


class TrainerEntry(LaunchKeys):
    """The training program, and what all its processes share."""

    where: ClassVar[str] = "trainer"

    code: v.LocalPath = Field(
        default=".",
        description="the directory that is pushed to the hosts, less what `.dtctlignore` (or else `.gitignore`) names "
        "and [files that hold secrets](quickstart.md#what-travels); relative to the directory of this file",
        examples=["src"],
    )
    code_anywhere: v.Flag = Field(
        default=False,
        description="`code` may be a home directory, lie above one or above the directory of this file, or be one of "
        "keys, such as `~/.aws`",
        examples=["true"],
    )
    python: v.Text | None = Field(
        default=None,
        description="interpreter for a leading `python` in `command`; if neither it nor `venv` is set, `python3` on "
        "the hosts, and with `--local` that of the active virtual environment, or else the one that runs dtctl",
        examples=["/opt/venv/bin/python"],
    )
    venv: v.HostPath | None = Field(default=None, description="a virtual environment on the hosts", examples=["~/venv"])
    setup: v.Text | None = Field(
        default=None,
        description="shell text that prepares a host; run in the code's directory, once for each content of the code",
        examples=["pip install -r requirements.txt"],
    )
    secrets: list[v.EnvName] = Field(
        default=[],
        description="names of variables whose values come from `env_file` or else from your own environment; never "
        "printed",
        examples=["[WANDB_API_KEY]"],
    )
    env_file: v.LocalPath | None = Field(
        default=None,
        description="a file of NAME=VALUE lines with values of `secrets`; relative to the directory of this file",
        examples=[".env"],
    )
    keep_proxy: v.Flag = Field(
        default=False,
        description="keep `http_proxy` and its like in the trainers' environment; they are dropped by default, "
        "because they get in the way of the tasks' own traffic",
        examples=["true"],
    )
