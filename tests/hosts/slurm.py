"""A real Slurm on one machine: a login node with its controller, and compute nodes with addresses of their own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hosts import keys, network, sandbox
from tests.hosts.fleet import sweep
from tests.hosts.network import Network
from tests.hosts.sandbox import Sandbox, User, make_directory, make_user
from tests.hosts.sshd import SSHD, wait_for_banner
from tests.waiting import PATIENCE_S, eventually

PROJECT = Path(__file__).parents[2]
DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch")
PACKAGES = "slurmctld slurmd slurm-client munge"
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USERS = ("train", "other")
NODE_CPUS = 4
URGENT = "urgent"
"""A partition whose jobs preempt those of the usual one."""
REQUEUE_DELAY_S = 6  # fewer than 5 are not accepted
"""Slurm holds a job back for so long after a requeue; 120 s where nothing is configured."""

# No cgroups: not every machine lets us. `config_overrides`: a node has the CPUs of this file, not of the machine.
CONF = """\
ClusterName=lab
SlurmctldHost=login({controller})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.sock,cred_expire={requeue_delay}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n/slurmd.pid
SlurmdSpoolDir={directory}/%n/spool
StateSaveLocation={directory}/state
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/%n/slurmd.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000,batch_sched_delay=0,preempt_send_user_signal
SlurmdParameters=config_overrides
SlurmdTimeout=6
MessageTimeout=5
TCPTimeout=1
KillWait=30
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobCompType=jobcomp/filetxt
JobCompLoc={directory}/jobs.log
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=10
PartitionName={urgent} Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """Why no Slurm can be started here; empty if it can."""
    if reason := sandbox.missing() or network.missing():
        return reason
    absent = [name for name in DAEMONS if shutil.which(name, path=SBIN) is None]
    absent += ["sshd"] if SSHD is None else []
    return f"{', '.join(absent)} not found (Debian: {PACKAGES})" if absent else ""


@dataclass
class Machine:
    """The login node or a compute node."""

    name: str
    address: str
    index: int
    directory: Path
    box: Sandbox

    @property
    def is_up(self) -> bool:
        return self.box.init != 0

    def processes(self, user: User) -> list[str]:
        """Command lines of what runs there as this user."""
        if not self.is_up:
            return []
        table = [line.split(None, 2) for line in self.box.run(["ps", "-e", "-o", "uid=,stat=,args="]).splitlines()]
        return [args for uid, state, args in table if uid == str(user.uid) and not state.startswith("Z")]


class Slurm:
    """`with Slurm(4) as slurm:` starts a login node and nodes n1 to n4, and leaves no process and no file at the end.

    Users `train` and `other` exist on all of them and have the same home on all, as with NFS. Ends with this process.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __enter__(self) -> Slurm:
        sweep()
        self.directory = make_directory("slurm")
        self.directory.chmod(0o711)
        self.machines: list[Machine] = []
        try:
            self.network = Network(self.count + 1)
            self.users = [make_user(name, at, self.directory / f"home-{name}") for at, name in enumerate(USERS)]
            names = [*(f"n{index}" for index in range(1, self.count + 1)), "login"]
            self.machines = [self._make_machine(name, index) for index, name in enumerate(names, 1)]
            self.nodes, self.login = self.machines[:-1], self.machines[-1]
            self._write_files()
            for machine in self.machines:
                self._launch(machine)
            wait_for_banner(self.login.address, 22, self.login.box.process)
            eventually(self._answers, what="Slurm's controller to answer")
            self.wait_for_idle()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        with ThreadPoolExecutor() as pool:  # the kernel takes a second or two for each
            list(pool.map(lambda machine: machine.box.kill(), self.machines))  # slurmstepd and all else ends with it
        if hasattr(self, "network"):
            self.network.remove()
        shutil.rmtree(self.directory)

    def __getitem__(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)

    @property
    def train(self) -> User:
        return self.users[0]

    @property
    def other(self) -> User:
        return self.users[1]

    def _make_machine(self, name: str, index: int) -> Machine:
        directory = self.directory / name
        directory.mkdir()
        files = {"/etc/hosts": self.directory / "hosts", "/etc/slurm": self.directory / "etc"}
        visible = (Path(sys.base_prefix), Path(sys.prefix), PROJECT)
        box = Sandbox(directory, self.users, name, self.network.netns(index), files, visible)
        return Machine(name, self.network.address(index), index, directory, box)

    def _write_files(self) -> None:
        for name in ("etc", "state", *(f"{node.name}/spool" for node in self.nodes)):
            (self.directory / name).mkdir()
        key = self.directory / "munge.key"
        key.touch(0o400)
        key.write_bytes(os.urandom(1024))
        lines = [f"{machine.address} {machine.name}\n" for machine in self.machines]
        (self.directory / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        nodes = [
            f"NodeName={node.name} NodeAddr={node.address} CPUs={NODE_CPUS} RealMemory=2000 State=UNKNOWN"
            for node in self.nodes
        ]
        text = CONF.format(
            directory=self.directory,
            controller=self.login.address,
            nodes="\n".join(nodes),
            urgent=URGENT,
            requeue_delay=REQUEUE_DELAY_S,
        )
        (self.directory / "etc" / "slurm.conf").write_text(text)
        self._write_ssh_files()

    def _write_ssh_files(self) -> None:
        """The login node has an SSH server, by which `train` logs in with `key`; the nodes have none."""
        self.key, self.host_key = keys.make_key("login"), keys.make_key("slurm-login")
        self.authorized = self.directory / "authorized_keys"
        self.authorized.write_text(keys.public_text(self.key))
        lines = [
            f"ListenAddress {self.login.address}:22",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.authorized}",
            *("StrictModes no", "UsePAM no", "UseDNS no", "PidFile none"),
            *("PasswordAuthentication no", "KbdInteractiveAuthentication no"),
        ]
        (self.directory / "sshd_config").write_text("\n".join(lines) + "\n")

    def known_hosts_text(self) -> str:
        return f"{self.login.address} {' '.join(keys.public_text(self.host_key).split()[:2])}\n"

    def _launch(self, machine: Machine) -> None:
        """The shell stays as the first process, because it reaps what daemons leave behind."""
        if machine is self.login:
            at = shlex.quote(str(self.directory))
            munged = f"munged --force --key-file={at}/munge.key --socket={at}/munge.sock --pid-file={at}/munge.pid"
            sshd = f"{SSHD} -f {at}/sshd_config -E {at}/sshd.log"
            script = (
                f"{sshd}; {munged} --log-file={at}/munged.log --seed-file={at}/munge.seed; slurmctld -D -i & wait $!"
            )
        else:
            script = f"slurmd -D -N {machine.name} & wait $!"
        output = f"exec >{shlex.quote(str(machine.directory / 'output.log'))} 2>&1; export PATH={SBIN}; "
        machine.box.start(["sh", "-c", output + script])

    def _answers(self) -> bool:
        for machine in self.machines:
            assert machine.box.process is not None
            output = machine.directory / "output.log"
            assert machine.box.process.poll() is None, (
                f"{machine.name} has ended: {output.exists() and output.read_text()}"
            )
        if not self.login.is_up or not (self.directory / "munge.sock").exists():
            return False
        return self.run("scontrol", "ping").returncode == 0

    def argv(self, words: Sequence[str], user: User | None, env: Mapping[str, str] = {}, cwd: str = "") -> list[str]:
        """The words of a command on the login node, as typed by a user (None: root)."""
        become = ["setpriv", f"--reuid={user.uid}", f"--regid={user.uid}", "--clear-groups"] if user else []
        home, name = (user.home_inside, user.name) if user else ("/root", "root")
        known = {"HOME": home, "USER": name, "LOGNAME": name, "PATH": SBIN, "LANG": "C.UTF-8", **env}
        place = ["env", "--ignore-environment", f"--chdir={cwd or home}", *(f"{k}={v}" for k, v in known.items())]
        return ["nsenter", f"--target={self.login.box.init}", "--all", *become, *place, *words]

    def run(
        self, *words: str, user: User | None = None, timeout_s: float = PATIENCE_S, **popen: Any
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(words, user), capture_output=True, text=True, timeout=timeout_s, check=False, **popen
        )

    def typed(self, *words: str, input_text: str = "", cwd: str = "") -> str:
        """What a command of `train` prints on the login node; fails the test unless it exits with 0."""
        command = self.argv(words, self.train, cwd=cwd)
        done = subprocess.run(
            command, input=input_text, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, f"{shlex.join(words)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def open(self, *words: str) -> subprocess.Popen[bytes]:
        """A command of `train` on the login node, with its three streams as pipes."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self.argv(words, self.train), stdin=pipe, stdout=pipe, stderr=pipe)

    def sbatch(self, script: str, *words: str, cwd: str = "") -> str:
        """Submits a batch script of bash as `train`; gives the job's id."""
        text = script if script.startswith("#!") else f"#!/bin/bash\n{script}\n"
        return self.typed("sbatch", "--parsable", *words, input_text=text, cwd=cwd).strip()

    def job(self, job: str) -> dict[str, str]:
        """The fields of `scontrol show job`."""
        return dict(word.split("=", 1) for word in self.typed("scontrol", "show", "job", job).split() if "=" in word)

    def state(self, job: str) -> str:
        return self.job(job)["JobState"]

    def wait_for(self, job: str, *states: str, timeout_s: float = PATIENCE_S) -> dict[str, str]:
        """The job's fields once it is in one of these states."""
        found: dict[str, str] = {}

        def reached() -> bool:
            found.update(self.job(job))
            return found["JobState"] in states

        eventually(reached, timeout_s, f"job {job} to be {' or '.join(states)}", every_s=0.1)
        return found

    def wait_for_idle(self) -> None:
        eventually(lambda: set(self.node_states().values()) == {"idle"}, what="all nodes to be idle", every_s=0.1)

    def node_states(self) -> dict[str, str]:
        return dict(
            line.split() for line in self.run("sinfo", "-h", "-N", "-p", "all", "-o", "%N %t").stdout.splitlines()
        )

    def busy(self) -> dict[str, list[str]]:
        """What runs as one of the users anywhere, by the machine's name."""
        found = {
            machine.name: [line for user in self.users for line in machine.processes(user)] for machine in self.machines
        }
        return {name: lines for name, lines in found.items() if lines}

    def crash(self, node: Machine) -> None:
        """The node dies at once, as by a power cut; its files stay. Its peers hear nothing."""
        self.network.cut(node.index)
        node.box.kill()

    def boot(self, node: Machine) -> None:
        self.network.heal(node.index)
        self._launch(node)

    def restore(self) -> None:
        """No job, all nodes idle, empty homes."""
        for node in self.nodes:
            if not node.is_up:
                self.boot(node)
        for user in self.users:
            self.run("scancel", "--user", user.name)
            self.run("scancel", "--signal=KILL", "--full", "--user", user.name)
        eventually(lambda: not self.run("squeue", "-h").stdout.strip(), what="no job to be left", every_s=0.1)
        for machine in self.machines:
            for user in self.users:
                if machine.processes(user):
                    machine.box.run(["sh", "-c", f"pkill -9 -U {user.uid} || true"])
        eventually(lambda: not self.busy(), what="no process to be left on any node")
        self.wait_for_idle()
        for user in self.users:
            for path in user.home.iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
