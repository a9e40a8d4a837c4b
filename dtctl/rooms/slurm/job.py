"""The batch script of a run: holds the nodes, starts the run on them as `dtctl up -f` does, and ends with its result.

    python -m dtctl.rooms.slurm.job SUBMISSION

On SIGTERM (the time limit, a preemption, `scancel`) it stops the run, so that trainers have their grace to save.
"""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dtctl.bundle.keeping import remove
from dtctl.errors import DtctlError, ExitCode
from dtctl.rooms.slurm import queue
from dtctl.rooms.slurm.placement import TRANSPORT, VARIABLE, Given, Node
from dtctl.rooms.slurm.submission import ENDS_S, Submission, code_of, run_of
from dtctl.rooms.slurm.transport import HOLDER
from dtctl.transport import payload

HOLDERS_S = 300.0
"""How long the nodes may take to start their holders: some wake up first."""
LOOK_S = 0.2
AGAIN_S = 2.0
END_S = 20.0


def main() -> None:
    try:
        code = run(Submission.load(Path(sys.argv[1])), os.environ)
    except DtctlError as error:
        say("\n".join(filter(None, [f"error: {error.summary}", error.detail, error.hint])))
        code = error.exit_code
    raise SystemExit(int(code))


def say(text: str) -> None:
    """Slurm writes stderr to the job's output."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def run(submission: Submission, environ: Mapping[str, str]) -> int:
    """The exit code of the run."""
    job, restarts = environ["SLURM_JOB_ID"], int(environ.get("SLURM_RESTART_COUNT", "0"))
    ends = Ends()
    folded = environ["SLURM_JOB_NODELIST"]
    own = environ["SLURMD_NODENAME"]
    names = tuple(sorted(queue.node_names(folded), key=lambda name: name != own))
    with Holders(job, names, ends) as holders:
        gpus = holders.await_all()
        addresses = queue.node_addresses(folded)
        nodes = tuple(Node.of(name, addresses.get(name, name), gpus[name]) for name in names)
        run_id = run_of(submission.run, restarts)
        given = Given(job, run_id, nodes)
        say(f"job {job} on {folded}: run {run_id}")
        code = follow(submission, given, ends)
        again = ends.asked and submission.requeue and is_running(job)
        if again and not may_continue(submission, run_id):
            say(f"job {job} does not wait in the queue again: it has come no further than the time before")
            again = False
    if again:
        say(f"job {job} waits in the queue again, and continues from the newest checkpoint")
        queue.ask(["scontrol", "requeue", job])
        time.sleep(END_S)  # Slurm ends this script
    elif not (ends.asked and submission.requeue):  # else Slurm itself may start the job again
        remove(code_of(submission.run))
    return code


class Ends:
    """Whether Slurm wants the job to end."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True

    def ask(self) -> None:
        self.asked = True


class Holders:
    """The step that holds all nodes of the job until it is left. A node that fails ends no other's holder."""

    def __init__(self, job: str, names: tuple[str, ...], ends: Ends) -> None:
        loader = json.dumps([word.rstrip() for word in shlex.split(payload.LOADER)[1:]])
        argv = [
            *("srun", f"--jobid={job}", f"--nodes={len(names)}", f"--ntasks={len(names)}", "--ntasks-per-node=1"),
            *("--overlap", "--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--chdir=/"),
            *(sys.executable, "-IS", str(HOLDER), "hold", loader),
        ]
        self._job = job
        self._names = names
        self._ends = ends
        self._gpus: dict[str, str] = {}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=queue.environment(), start_new_session=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Holders:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
            return
        self._process.kill()

    def await_all(self) -> dict[str, str]:
        """Node -> what it has in CUDA_VISIBLE_DEVICES. Raises DtctlError when a node starts none."""
        deadline = time.monotonic() + HOLDERS_S
        while len(self._gpus) < len(self._names):
            code = self._process.poll()
            if code is not None or time.monotonic() > deadline or self._ends.asked:
                missing = ", ".join(name for name in self._names if name not in self._gpus)
                why = "was ended" if self._ends.asked else f"has not started on {missing}"
                raise DtctlError(f"the step that holds the nodes of job {self._job} {why}")
            time.sleep(0.02)
        return dict(self._gpus)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError, KeyError, TypeError):
                said = json.loads(line)
                if "holds" in said and said["node"] in self._names:
                    self._gpus[said["node"]] = str(said["holds"])
                elif said.get("signal") == "TERM":
                    self._ends.ask()


def follow(submission: Submission, given: Given, ends: Ends) -> int:
    """Starts the run and waits for its end; stops it when the job is to end. Returns its result as an exit code."""
    words = [word for override in submission.overrides for word in ("--set", override)] + [*submission.words]
    code = typed(["up", "--on", TRANSPORT, *words, "--follow", "--replace"], submission, given, ends)
    while not ends.asked and goes_on(given.run):
        say(f"run {given.run} goes on, and is followed again")
        time.sleep(AGAIN_S)
        code = typed(["wait", "--run", given.run], submission, given, ends)
    return code


def typed(words: list[str], submission: Submission, given: Given, ends: Ends) -> int:
    """The exit code of a command of dtctl's that follows the run; the run is stopped when the job is to end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dtctl", *words],
        env={**os.environ, VARIABLE: given.to_json()},
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Slurm's SIGTERM to the script would end it before the run
        preexec_fn=_end_with_script,
    )
    while process.poll() is None and not ends.asked:
        time.sleep(LOOK_S)
    if process.poll() is None:
        if stop(submission, given):
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_S)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)  # cancels a start, and leaves a run alone
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
    code = process.poll()
    if code is None:
        process.kill()
        return ExitCode.TERMINATED
    return code if code >= 0 else 128 - code


def goes_on(run: str) -> bool:
    """Whether the run has begun and is not over, though the command that followed it has ended."""
    from dtctl.operations.history import Memory
    from dtctl.operations.status import status
    from dtctl.transport.connect import Transports

    record = Memory().load(run)
    if record is None or not record.begun:
        return False
    try:
        return not status(record, Transports()).verdict.outcome.decided
    except DtctlError as error:
        say(f"run {run}: {error.summary}")
        return True


def _end_with_script() -> None:
    """Lets the kernel end this process when the batch script is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


PR_SET_PDEATHSIG = 1
"""prctl(2)"""


def stop(submission: Submission, given: Given) -> bool:
    """Stops the run with its grace, if it has started; Slurm itself ends what takes longer than it allows."""
    from dtctl.operations.history import Memory
    from dtctl.operations.stop import StopOrder
    from dtctl.operations.stop import stop as stop_run
    from dtctl.transport.connect import Transports

    record = Memory().load(given.run)
    if record is None or not record.begun:
        return False
    say(f"job {given.job} is to end: run {given.run} is stopped, and its tasks may save")
    try:
        ended = stop_run(record, Transports(), tuple(record.roster), StopOrder(f"Slurm job {given.job}"))
    except DtctlError as error:
        say(f"run {given.run} could not be stopped: {error.summary}")
        return False
    for name, failure in ended.errors.items():
        say(f"{name}: {failure.summary}")
    return True


def may_continue(submission: Submission, run: str) -> bool:
    """Whether another start of the job can come further than this one: it has passed the step of the one before.

    Programs that report no step may always continue.
    """
    from dtctl.operations.history import Memory
    from dtctl.operations.status import status
    from dtctl.transport.connect import Transports

    record = Memory().load(run)
    step = None
    if record is not None:
        with suppress(DtctlError):
            step = status(record, Transports()).progress.step
    before = submission.step()
    if step is not None:
        submission.keep_step(step)
    return step is None or before is None or step > before


def is_running(job: str) -> bool:
    """Whether the job has been warned only: one that is cancelled is ending already."""
    with suppress(DtctlError):
        found = queue.own_jobs().get(job)
        return found is not None and found.phase == "running"
    return False


if __name__ == "__main__":
    main()
