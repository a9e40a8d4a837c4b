"""A tree of code and data on several hosts: all of it, and again after one file has changed."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from pathlib import Path

from benchmarks.measuring import DTCTL, CannotRun
from benchmarks.peers import report
from benchmarks.peers.contest import Course, Options, Report, compete
from benchmarks.peers.doing import Contender, Environment, Field, field, for_each_host, script, synchronize
from benchmarks.peers.report import Goal

MOST_HOSTS = 10
FILES = 500
BYTES = 47_000_000
LARGE_BYTES = 500_000_000
ONE_FILE_BYTES = 500_000_000
CHANGED_BYTES = 1_000_000
CHANGED = Path("package7", "module7.py")
WORDS = ("import", "self", "return", "def", "inputs", "training", "layers", "activation", "None", "shape=(8, 8)")

COLD, AGAIN, LARGE, ONE_FILE = "cold", "one changed", "one of 500 MB", "1 MB of 500 MB"
GOALS = {
    COLD: [Goal("dtctl push", "rsync", time=1.0, machine=1.2)],
    AGAIN: [Goal("dtctl push", "rsync", time=1.0)],
    ONE_FILE: [Goal("dtctl push", "rsync", time=0.7)],
}


def run(options: Options, environment: Environment) -> Report:
    hosts = min(options.hosts or MOST_HOSTS, MOST_HOSTS)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        directory = Path(name)
        with field(hosts, options.width, directory, homes=True) as ground:
            write_tree(directory / "code", BYTES)
            ground.servers.write_cluster('command: ["true"]')
            rivals = contenders(ground, environment)
            standings = compete(ground, rivals, options.rounds, Tree(ground))
            write_tree(directory / "code", LARGE_BYTES)
            incremental = [_only(LARGE, one) for one in rivals if AGAIN in one.steps]
            large = compete(ground, incremental, options.rounds, _Large(ground))
            write_one_file(directory / "code")
            changed = [_only(ONE_FILE, one) for one in rivals if AGAIN in one.steps]
            one_file = compete(ground, changed, options.rounds, _OneFile(ground))
    tree = f"{BYTES / 1e6:.0f} MB in {FILES} files"
    titles = {COLD: f"{tree} to {hosts} hosts that have nothing", AGAIN: f"The same, one file of {FILES} changed"}
    sections = [report.section(title, rivals, standings, step, GOALS[step]) for step, title in titles.items()]
    sections.append(
        report.section(f"{LARGE_BYTES / 1e6:.0f} MB in {FILES} files, one of them changed", incremental, large, LARGE)
    )
    title = f"{CHANGED_BYTES / 1e6:.0f} MB changed in one file of {ONE_FILE_BYTES / 1e6:.0f} MB"
    sections.append(report.section(title, changed, one_file, ONE_FILE, GOALS[ONE_FILE]))
    return Report(hosts, sections, [standings, large, one_file])


def _only(step: str, contender: Contender) -> Contender:
    return replace(contender, steps={step: contender.steps[AGAIN]})


def write_tree(directory: Path, total_bytes: int) -> None:
    """Writes the same files every time, which compress about as well as code and data together."""
    noise = random.Random(0)
    for number in range(FILES):
        file = directory / f"package{number % 20}" / f"module{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        size = total_bytes // FILES
        text = " ".join(noise.choices(WORDS, k=size // 15)).encode()
        file.write_bytes(text + noise.randbytes(size - len(text)))


def write_one_file(directory: Path) -> None:
    """Writes one file in place of the tree, like a checkpoint or a data set."""
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "train.py").touch()
    noise = random.Random(0)
    with (directory / "data").open("wb") as file:
        for _ in range(ONE_FILE_BYTES // CHANGED_BYTES):
            file.write(noise.randbytes(CHANGED_BYTES))


def contenders(ground: Field, environment: Environment) -> list[Contender]:
    """The contenders. Those without a step for the changed file send everything again."""
    code, config = ground.directory / "code", ground.ssh_config(kept=False)
    both, env, lacks = (COLD, AGAIN), ground.env(), environment.missing()
    ours = (*DTCTL, "push", "-q")
    rsync = f"rsync -az --delete -e 'ssh -F {config}' {code}/ {{}}:code/"
    in_parallel, one_by_one = for_each_host(ground, rsync), for_each_host(ground, rsync, width=1)
    unpack = f"sh -c 'ssh -F {config} {{}} tar -xz <{ground.directory}/code.tgz'"
    tar = f"tar -C {ground.directory} -czf {ground.directory}/code.tgz code && {for_each_host(ground, unpack)[-1]}"
    clush = [environment.program("clush"), "-S", "-f", str(ground.width), "-o", f"-F {config}"]
    copy = [*clush, "-w", ",".join(ground.hosts), "--copy", str(code), "--dest", "code"]
    libraries = {
        "paramiko": "SFTP, a file at a time, confirm=False",
        "asyncssh": "scp",
        "parallel-ssh": "copy_file",
        "fabric": "put of an archive",
    }
    wide = f"xargs -P {ground.width}"
    need_rsync = environment.missing("rsync")
    ansible = synchronize(ground, environment, "src=code/ dest=code/ delete=yes use_ssh_args=yes verify_host=yes", both)
    return [
        Contender("dtctl push", "as it comes", dict.fromkeys(both, ours), env, ours=True),
        Contender("rsync", f"-az, {wide}", dict.fromkeys(both, in_parallel), env, lacks=need_rsync),
        Contender("rsync, one by one", "-az", dict.fromkeys(both, one_by_one), env, lacks=need_rsync),
        replace(ansible, lacks=ansible.lacks or need_rsync),
        Contender("tar and ssh", f"tar -cz once, {wide}", {COLD: ["sh", "-c", tar]}, env),
        Contender("clush", "--copy, by scp", {COLD: copy}, env, lacks=lacks),
        *(
            Contender(
                name, how, {COLD: script(ground, environment, name, "push", str(code))}, env, lacks=environment.lacks
            )
            for name, how in libraries.items()
        ),
    ]


@dataclass
class Tree(Course):
    """Sends the tree, and again after a change of one file."""

    ground: Field
    changes: int = 0

    def prepare(self, contender: Contender, step: str) -> None:
        if step == COLD:
            self._forget()
        else:
            self.changes += 1
            self.change(self.ground.directory / "code")

    def change(self, code: Path) -> None:
        file = code / CHANGED
        file.write_bytes(f"# change {self.changes:06}\n".encode() + file.read_bytes()[16:])

    def _forget(self) -> None:
        """Removes all state, as if neither side had ever sent anything."""
        for remembered in (".local", ".cache"):
            shutil.rmtree(self.ground.directory / remembered, ignore_errors=True)
        for user in self.ground.servers.sshd.users.values():
            for left in user.home.iterdir():
                if left.is_dir():
                    shutil.rmtree(left)

    def verify(self, contender: Contender, step: str, printed: str) -> str:
        wanted = _contents(self.ground.directory / "code")
        homes = [user.home for user in self.ground.servers.sshd.users.values()]
        places = ".dtctl/bundles/*/tree" if contender.ours else "code"
        wrong = [home for home in homes if not any(_contents(tree) == wanted for tree in home.glob(places))]
        return f"{len(wrong)} hosts have another tree" if wrong else ""


@dataclass
class _Large(Tree):
    """The hosts of all contenders have the tree except its last change; transfers that do not count are left out."""

    sent_by: set[str] = field_of(default_factory=set)

    def prepare(self, contender: Contender, step: str) -> None:
        if contender.name not in self.sent_by:
            self.sent_by.add(contender.name)
            done = subprocess.run(
                contender.steps[step], cwd=self.ground.directory, env=contender.env, capture_output=True, check=False
            )
            if done.returncode:
                raise CannotRun(f"{contender.name} cannot send the tree: {done.stderr[-500:]!r}")
        super().prepare(contender, step)


class _OneFile(_Large):
    def change(self, code: Path) -> None:
        with (code / "data").open("r+b") as file:
            file.seek(ONE_FILE_BYTES // 2)
            file.write(random.Random(self.changes).randbytes(CHANGED_BYTES))


def _contents(tree: Path) -> Mapping[str, int]:
    """The checksums of all files."""
    return {str(file.relative_to(tree)): zlib.crc32(file.read_bytes()) for file in tree.rglob("*") if file.is_file()}
