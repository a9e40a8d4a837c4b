"""dtctl's words: one word, one thing. For `dtctl explain` and docs/glossary.md."""

from __future__ import annotations

WORDS = {
    "address": "`host:port` where a task's server listens, as the other tasks reach it; `--ps_hosts` holds such",
    "agent": "the supervisor that dtctl leaves on each host for a run: it keeps the trainers, with nobody logged in",
    "attempt": "one start of a task's process within a run; its log is never overwritten",
    "bundle": "the pushed training code, named by its content; never changed once it is there",
    "checkpoint": "what a trainer saves so that the next one continues: variables, optimizer, step",
    "cluster": "all the jobs of one `cluster.yaml`: what trains one model together",
    "controller": "the machine where `dtctl` is typed; a run does not need it once it has started",
    "coordinator": "the agent that decides for the whole run: the one on the lead's host. The agents of the other "
    "hosts connect to its port, 2221 unless `coordinator.port` says otherwise",
    "dialect": "how a trainer learns its place: TensorFlow's flags, `TF_CONFIG`, the variables of another framework, "
    "or a template of words",
    "gang": "tasks that cannot train without each other: when one is lost, all are started again",
    "goodput": "the share of the elapsed time in which steps were made that were kept (docs/report.md)",
    "host": "a machine of the file, as reached by SSH",
    "job": "a named group of tasks: `ps`, `worker`, `chief`, `evaluator`, or a name of your own",
    "lead": "the task whose end is the end of the run: `chief:0` or `master:0`; without one, `worker:0`. It writes the "
    "checkpoints. Without parameter servers every worker's end counts",
    "ps": "parameter server: a task that holds variables and updates them; it never exits by itself",
    "ready": "said of a task that others need: its port listens, or it has reported a step (with the dialects "
    "`template` and `none`: it runs). `dtctl up` returns when every such task is ready",
    "run": "one `dtctl up`, with an id; what it was started with never changes",
    "spare": "a host that no job uses, for `dtctl replace` to put in the place of one that is lost",
    "step": "one update of the model; the global step counts those of all workers together",
    "task": "one trainer process: a job and an index, written `worker:1`",
    "template": "a trainer with its cluster.yaml, written by `dtctl init`; also: words with {fields} for a trainer "
    "with flags of its own",
    "transport": "how a host is reached: `ssh`, or `local` for this machine",
    "way": "how the tasks train together (`strategy`): asynchronous or synchronous with parameter servers, in-graph, "
    "`ParameterServerStrategy`, mirrored, ...; it decides who needs whom at the start and what a loss restarts",
    "worker": "a task that computes gradients on batches of its own",
}
"""In the order of the alphabet."""

STATES = {
    "pending": "waits for the coordinator's word: until all hosts are heard, or the jobs ready that it `depends_on`",
    "starting": "its process is being made",
    "running": "its process runs",
    "backoff": "it has failed and is started again, after a delay or when those that it needs are ready",
    "stalled": "alive, but without a sign of progress",
    "succeeded": "it has ended with exit code 0",
    "failed": "it has ended with an error, and is not tried again",
    "stopped": "ended by dtctl",
    "lost": "nobody can tell, because its host is away; never guessed to be failed",
}
"""Of a task, in the order of its life."""
