"""Imports point one way, and what is slow to import is not imported at the start."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.rooms import EXCHANGES, FRAMES, OBSERVERS, TOPICS, WORDS, load
from dtctl.agent.rooms import ROOMS as AGENT_ROOMS
from dtctl.cli.table import COMMANDS
from dtctl.rooms import ROOMS, Room, each
from tests import rooms
from tests.unit.wrong_commands import WRONG_COMMANDS, WRONG_COMMANDS_OF_ROOMS

PACKAGE = Path(__file__).resolve().parents[2] / "dtctl"

MAY_IMPORT = {
    "": {"api", "errors"},
    "rooms": set(),
    "api": {"api", "rooms", "render", "operations", "plan", "bundle", "transport", "config", "model", "errors"},
    "cli": {
        "cli",
        "rooms",
        "render",
        "operations",
        "plan",
        "bundle",
        "transport",
        "config",
        "model",
        "durations",
        "errors",
    },
    "render": {
        "render",
        "rooms",
        "operations",
        "plan",
        "bundle",
        "transport",
        "config",
        "model",
        "durations",
        "errors",
    },
    "operations": {
        "operations",
        "rooms",
        "plan",
        "bundle",
        "transport",
        "config",
        "folder",
        "paths",
        "model",
        "errors",
    },
    "plan": {"plan", "config", "model", "errors"},
    "bundle": {"bundle", "transport", "config", "secret_files", "folder", "paths", "model", "errors"},
    "transport": {"transport", "rooms", "config", "folder", "paths", "model", "errors"},
    "config": {"config", "secret_files", "folder", "paths", "model", "durations", "errors"},
    "agent": {"agent"},
    "trainer": set(),
    "paths": {"errors"},
    "folder": {"paths"},
    "model": {"errors"},
    "secret_files": set(),
    "durations": set(),
    "dataclass": set(),
    "errors": set(),
    "__main__": {"cli"},
}


def modules() -> dict[str, Path]:
    """By their names; a package is its __init__.py."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in paths
    }


def imports_of(name: str, tree: ast.AST) -> Iterator[str]:
    """Absolute names of what a module imports, wherever in it: of modules, or of what is in one."""
    path = MODULES[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            yield from (".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names)


class _AtRunTime(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return node.orelse if typing else node


MODULES = modules()


# Functions, not constants: every process of the tests imports this module, and few of them need the trees.
def tree(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text())


@cache
def all_imports() -> dict[str, set[str]]:
    return {name: {*imports_of(name, tree(name))} for name in MODULES}


@cache
def imports_at_run_time() -> dict[str, set[str]]:
    return {name: {*imports_of(name, _AtRunTime().visit(tree(name)))} for name in MODULES}


def below(name: str, *packages: str) -> bool:
    return f"{name}.".startswith(tuple(f"{package}." for package in packages))


VISITED = (
    *("dtctl.agent.records", "dtctl.agent.host.secrets", "dtctl.agent.host.escapes"),
    *("dtctl.agent.run.policy", "dtctl.agent.run.outcome", "dtctl.agent.run.run_events", "dtctl.agent.run.goodput"),
    *("dtctl.agent.run.cause", "dtctl.agent.run.drains", "dtctl.agent.run.gang", "dtctl.agent.run.hangs"),
    *("dtctl.agent.run.log_text", "dtctl.agent.run.installing", "dtctl.agent.run.traceback"),
    "dtctl.agent.rooms.speed.adding",
    *(name for name in MODULES if re.fullmatch(r"dtctl\.agent\.rooms\.\w+\.records", name)),
)
"""What is pure in the agent, which says what both sides of a conversation have to agree on. The rest is only sent."""

BORROWED = (
    *("dtctl.agent.checkpoints.reading", "dtctl.agent.checkpoints.verifying", "dtctl.agent.checkpoints.tensor_bundle"),
    *("dtctl.agent.checkpoints.formats", "dtctl.agent.checkpoints.state_file", "dtctl.agent.checkpoints.keras"),
    *("dtctl.agent.checkpoints.orbax", "dtctl.agent.rooms.checkpoints.storing", "dtctl.agent.rooms.metrics.reading"),
    *("dtctl.agent.host.budget", "dtctl.agent.bundles.tree", "dtctl.agent.host.errors"),
)
"""What reads checkpoints and scalars on hosts does so on this machine, too: both judge alike; for operations."""

PURE = {"bisect", "__future__", "binascii", "importlib", "itertools", "json", "math", "re", "signal"}
"""What a pure module may import: nothing that knows of a file, a process, a socket or a clock."""

IMPURE = {"open", "input", "print", "exec", "eval", "compile", "__import__"}

VISITORS = {
    "rooms",
    "model",
    "config",
    "secret_files",
    "bundle",
    "transport",
    "operations",
    "plan",
    "render",
    "cli",
    "api",
}

PARTS = {
    "main": {"supervise", "survival", "hooks", "run", "host"},
    "requests": {
        *("main", "coordinate", "survival", "logs", "bundles", "checkpoints", "vitals", "rooms", "run"),
        *("conversation", "host", "records"),
    },
    "supervise": {
        *("coordinate", "survival", "logs", "dump", "checkpoints", "vitals", "rooms", "run", "host", "records"),
    },
    "coordinate": {"survival", "checkpoints", "hooks", "link", "run", "host", "records"},
    "survival": {"run", "host"},
    "hooks": {"run", "host", "records"},
    "logs": {"run", "conversation", "host", "records"},
    "dump": {"run", "host", "records"},
    "bundles": {"link", "conversation", "host", "records"},
    "checkpoints": {"host", "records"},
    "vitals": {"host", "records"},
    "link": {"records"},
    "conversation": {"rooms", "host", "records"},
    "rooms": {"records"},
    "run": {"host", "records"},
    "host": {"records"},
    "records": set(),
    "bootstrap": set(),
}
"""Which parts of the agent a part may use. `rooms` is the table of rooms."""

OF_ROOMS = {
    *("requests", "survival", "logs", "dump", "bundles", "checkpoints", "vitals", "link", "rooms", "run"),
    *("conversation", "host", "records"),
}
"""The parts of the agent that a room may use."""

ENTRIES = {
    "coordinate": {"following", "leading", "superseded", "view", "voting", "waiting"},
    "supervise": {"supervisor"},
    "survival": {"revival", "reboot", "systemd"},
    "logs": {"reader", "sieve", "lines"},
    "dump": {"", "stacks"},
    "bundles": {"blocks", "receiver", "store", "tree", "working"},
    "checkpoints": {"reading", "repair", "directories", "formats", "state_file", "tensor_bundle", "verifying"},
    "hooks": {"posting", "sender"},
    "vitals": {"drivers", "gpus", "machine_load", "usage"},
    "link": {"hub", "acceptor", "dialer", "peer", "tls"},
    "rooms": {""},
}
"""The modules by which others enter a part, or "", the part itself; of those that are not named here, all."""

SCREENS = re.compile(r"screen|document|\w+_(?:screen|document|page)")
"""The modules of a room that draw."""


def layer_of(name: str) -> str:
    """The layer of the controller to which a module belongs; of a room's that to which it would belong."""
    first, room, module = [*name.split("."), "", "", ""][1:4]
    if first != "rooms" or not room:
        return first
    if module == "command":
        return "cli"
    return "render" if room == "top" or SCREENS.fullmatch(module) else "operations"


def test_imports_point_one_way() -> None:
    wrong = []
    for name, imports in all_imports().items():
        layer = layer_of(name)
        free = (*(VISITED if layer in VISITORS else ()), *(BORROWED if layer == "operations" else ()))
        own = [one for one in imports if below(one, "dtctl") and not below(one, *free)]
        own = [one for one in own if _module(one) != "dtctl.agent.rooms" or layer not in VISITORS]
        # `from dtctl import __version__` is everybody's, and `dataclass` the controller's.
        used = {layer_of(_module(one) or one) for one in own if "." in one} - {"", "__version__"}
        used -= set() if layer == "agent" else {"dataclass"}
        wrong += [f"{name} imports {one}" for one in used - MAY_IMPORT.get(layer, set())]
    assert wrong == []


def test_the_agents_parts_use_each_other_one_way_and_by_their_entries() -> None:
    wrong = []
    for name in (one for one in MODULES if below(one, "dtctl.agent") and one.count(".") > 1):
        own = name.split(".")[2]
        may = OF_ROOMS if rooms.room_of(name) else PARTS[own]
        for used in (one for one in all_imports()[name] if below(one, "dtctl.agent")):
            part, module = [*_module(used).split("."), "", ""][2:4]
            if (part != own or own == "rooms") and not rooms.room_of(_module(used)):
                is_open = part in may and module in ENTRIES.get(part, {module})
                wrong += [] if is_open else [f"{name} imports {part}.{module}"]
    assert wrong == []


def test_the_core_imports_no_room() -> None:
    """What a run needs knows of rooms only what their rows say. `import dtctl` offers the API, which is a room."""
    wrong = {
        f"{name} imports {_module(used)}"
        for name, imports in all_imports().items()
        for used in imports
        if not rooms.room_of(name) and rooms.room_of(_module(used))
    }
    assert wrong == {"dtctl imports dtctl.api"}


def late_rooms(name: str) -> set[str]:
    """Rooms that a module uses without any import: `rooms.check.checking` of dtctl/cli/late.py imports one."""
    nodes = (node for node in ast.walk(tree(name)) if isinstance(node, ast.Attribute))
    of_rooms = {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "rooms"}
    return of_rooms & {*rooms.names()}


def test_the_core_names_no_room_behind_late_imports() -> None:
    assert {name: late for name in MODULES if not rooms.room_of(name) and (late := late_rooms(name))} == {}


def test_wrong_commands_of_rooms_are_of_commands_that_there_are() -> None:
    assert {one.words.split()[0] for one in WRONG_COMMANDS_OF_ROOMS} <= COMMANDS.keys()
    assert len(WRONG_COMMANDS) >= 270


def test_a_room_imports_only_rooms_that_its_row_names() -> None:
    """A module that has another room's name joins the two."""
    wrong = []
    for name, imports in all_imports().items():
        room = rooms.room_of(name)
        joined = name.split(".")[-1]
        for other in ({rooms.room_of(_module(one)) for one in imports} | late_rooms(name)) - {"", room}:
            if room and other not in rooms.needs(room) and other != joined:
                wrong.append(f"{name} imports the room {other}")
    assert wrong == []


def test_needs_of_rooms_have_no_circle() -> None:
    assert cycles({room: rooms.needs(room) for room in rooms.names()}) == []


def test_every_folder_of_a_room_has_its_row_and_each_row_its_folder() -> None:
    folders = {rooms.room_of(name) for name in MODULES} - {"", "api"}
    assert folders == ROOMS.keys() | AGENT_ROOMS.keys()
    assert {rooms.room_of(name) for name in MODULES if below(name, "dtctl.rooms")} - {""} == ROOMS.keys()
    assert {rooms.room_of(name) for name in MODULES if below(name, "dtctl.agent.rooms")} - {""} == AGENT_ROOMS.keys()


def test_every_name_in_the_tables_of_rooms_can_be_loaded() -> None:
    for row in (*EXCHANGES.values(), *TOPICS.values()):
        assert all(map(load, (row.handler, row.request, row.result)))
    assert all(map(load, (*FRAMES.values(), *WORDS.values(), *OBSERVERS)))
    assert all(list(each(part)) for part in Room._fields if part not in ("commands", "needs"))
    assert all(hasattr(import_module(f"dtctl.{one.module}"), name) for name, one in COMMANDS.items())


def test_what_a_controller_visits_in_the_agent_is_pure() -> None:
    wrong = []
    for name in (one for one in MODULES if below(one, *VISITED) and MODULES[one].name != "__init__.py"):
        for used in imports_at_run_time()[name]:
            pure = below(used, *VISITED) if below(used, "dtctl") else used.split(".")[0] in PURE
            wrong += [] if pure else [f"{name} imports {used}"]
        nodes = [*ast.walk(tree(name))]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        signals = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
        signals = {one for one in signals if re.fullmatch(r"signal\.(?!Signals$)\w+", one)}  # names of signals are pure
        wrong += [f"{name} has {one}" for one in sorted(signals | names & IMPURE)]
    assert wrong == []


CYCLES: tuple[set[str], ...] = (
    {
        *("dtctl.transport.local", "dtctl.transport.seam", "dtctl.transport.ssh", "dtctl.transport.stream"),
        "dtctl.transport.wire",
    },
)
"""What imports each other, though some of it does so inside a function. Nothing else may."""


def test_modules_and_folders_do_not_import_each_other() -> None:
    """In each folder what lies there, modules and folders as wholes, is used one way."""
    folders = [name for name, path in MODULES.items() if path.name == "__init__.py"]
    found = [cycle for folder in folders for cycle in cycles(_inside(folder))]
    assert [cycle for cycle in found if not any(cycle <= known for known in CYCLES)] == []


def test_modules_do_not_import_each_other_for_types_either() -> None:
    graph = {name: {_module(one) for one in imports} - {"", name} for name, imports in all_imports().items()}
    assert cycles(graph) == []


def _inside(folder: str) -> dict[str, set[str]]:
    """The modules and folders of a folder, and which of them each imports."""
    graph: dict[str, set[str]] = {}
    for name, imports in imports_at_run_time().items():
        importer = _child(folder, name)
        graph.setdefault(importer, set()).update(_child(folder, _module(one)) for one in imports)
    return {one: used - {one, ""} for one, used in graph.items() if one}


def _child(folder: str, module: str) -> str:
    """The table of rooms is a child of its own, beside the rooms."""
    if module in ("dtctl.rooms", "dtctl.agent.rooms") and module.rpartition(".")[0] == folder:
        return f"{module} (the table)"
    return ".".join(module.split(".")[: folder.count(".") + 2]) if below(module, folder) else ""


def _module(name: str) -> str:
    """The one that is imported by `from package import name`."""
    return name if name in MODULES else name.rpartition(".")[0] if name.rpartition(".")[0] in MODULES else ""


def cycles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Modules that reach each other."""

    @cache
    def reached(name: str) -> frozenset[str]:
        seen, waiting = set[str](), [name]
        while waiting:
            new = graph[waiting.pop()] - seen
            seen |= new
            waiting += new
        return frozenset(seen)

    found = {frozenset(one for one in reached(name) if name in reached(one)) for name in graph if name in reached(name)}
    return [set(cycle) for cycle in found]


def test_only_the_ssh_modules_import_fabric_and_paramiko() -> None:
    users = {
        name
        for name, imports in all_imports().items()
        if any(below(one, "fabric", "paramiko", "invoke") for one in imports)
    }
    assert {name.split(".")[1] for name in users} == {"transport"}


STARTS = {
    "dtctl.bundle.ignore": "git, for a setting of the user's own",
    "dtctl.rooms.execute.command": "ssh, or the words that were typed",
    "dtctl.operations.hooks": "what the user has allowed",
    "dtctl.rooms.tensorboard.local": "TensorBoard of this machine",
    "dtctl.rooms.slurm.holder": "the agent, on a node of a job",
    "dtctl.rooms.slurm.job": "srun, and dtctl itself, on the first node of a job",
    "dtctl.rooms.slurm.queue": "programs of Slurm",
    "dtctl.transport.local": "the agent of local hosts",
    "dtctl.transport.ssh.kept": "ssh",
    "dtctl.transport.ssh.program": "ssh",
}
"""The modules of the controller that start programs, and which."""


def test_the_controller_starts_no_other_programs() -> None:
    """In particular no pip, uv or conda: a cloned directory says what these build and run."""
    starting = re.compile(r"(subprocess|multiprocessing|pty|os\.(exec|spawn|posix_spawn|system|popen|fork).*)(\..*)?")
    found = {
        name
        for name, imported in all_imports().items()
        if not name.startswith("dtctl.agent") and any(starting.fullmatch(one) for one in imported)
    }
    calls = {
        name
        for name in MODULES
        if not name.startswith("dtctl.agent")
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Attribute) and starting.fullmatch(ast.unparse(node))
    }
    assert found | calls == STARTS.keys()


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["up", "--help"]])
def test_help_and_version_import_nothing_slow(args: list[str]) -> None:
    script = (
        "import sys\n"
        "from dtctl.cli import main\n"
        f"sys.argv = ['dtctl', *{args!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "slow = {'fabric', 'paramiko', 'invoke', 'tensorflow', 'yaml', 'pathspec', 'cryptography', 'pydantic'}\n"
        "slow &= set(sys.modules)\n"
        "print('slow:', slow, file=sys.stderr)\n"
        "sys.exit(bool(slow))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_session_reads_few_modules_before_its_request(tmp_path: Path) -> None:
    script = (
        "import io, sys\n"
        "from dtctl.agent.conversation import Conversation, Gone, Wire\n"
        "from dtctl.agent.requests.session import converse\n"
        "try: converse(Conversation(sys.argv[1], Wire(io.BytesIO(), io.BytesIO())))\n"
        "except Gone: print(*(name for name in sys.modules if name.startswith('dtctl.agent')))\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "root")]
    read = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert "dtctl.agent.requests.session" in read
    assert len(read) <= 20, read


def test_an_error_and_its_hint_off_a_terminal_import_no_rich(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from dtctl.cli import main\n"
        "sys.argv = ['dtctl', 'status', '--cluster', 'absent']\n"
        "try: main()\n"
        "finally: print('rich' in sys.modules)\n"
    )
    env = {"HOME": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "False\n"), done.stderr
    assert "error: no run of a cluster 'absent'" in done.stderr
    assert " hint: " in done.stderr


def test_paramiko_knows_its_version_without_parsers_of_archives_and_mail() -> None:
    script = (
        "import sys\n"
        "from dtctl import cli\n"
        "cli._spare_imports()\n"
        "import paramiko\n"
        "print({'zipfile', 'email'} & set(sys.modules))\n"
        "import importlib.metadata\n"
        "assert importlib.metadata.version('paramiko')\n"
        "from importlib.metadata import entry_points, version\n"
        "print(version('paramiko') == paramiko.__version__, bool(entry_points()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["set()", "True True"]


def test_only_the_log_writes_to_an_agents_stderr() -> None:
    """It is a file on a disk that may be full, which ends whoever does not expect that."""
    agent = [path for name, path in MODULES.items() if below(name, "dtctl.agent")]
    assert [path.name for path in agent if "file=sys.stderr" in path.read_text()] == ["errors.py"]


def test_one_module_reads_and_sends_files_of_this_machine_and_requires_consent() -> None:
    """Whoever makes a Sender, or scans a directory to be sent, would have to ask for consent by himself."""
    outside = [name for name in MODULES if not below(name, "dtctl.bundle", "dtctl.agent")]
    scans = {name for name in outside if "dtctl.bundle.scanning.scan" in imports_at_run_time()[name]}
    makes = {
        name
        for name in outside
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Sender"
    }
    assert makes == {"dtctl.operations.sending"}
    assert scans - makes == {"dtctl.operations.environments"}, "whose wheels `scan_wheels` sends"


READ_REASONS = {
    "dtctl.agent.records.reasons": "declares them and makes sentences",
    "dtctl.render.events": "draws a reason by its kind",
    "dtctl.render.failure": "draws a reason by its kind",
    "dtctl.render.roster": "draws a reason by its kind",
    "dtctl.render.starting": "draws a reason by its kind",
    "dtctl.render.status": "draws a reason by its kind",
}
"""The only modules that read facts of reasons. mypy lets nobody read them but through these functions."""

READERS = {"read", "headline", "named", "fields_of", "FactFields", "HOLDING", "SENTENCES"}

SAY_REASONS = {
    "dtctl.agent.records.reasons": "has the sentence of every kind",
    "dtctl.agent.run.run_events": "a notification, which the host itself sends",
    "dtctl.agent.requests.run_handles": "why a request is refused",
    "dtctl.agent.requests.stop": "why a request is refused",
    "dtctl.agent.coordinate.moving": "the spares that cannot take a place, in a warning",
    "dtctl.operations.findings": "the text of a finding",
    "dtctl.rooms.diagnose.waits": "the text of a finding",
}
"""The modules outside `render` and `api` that make sentences."""


def names_of_reasons(name: str) -> set[str]:
    found = (one for one in all_imports()[name] if one.startswith("dtctl.agent.records.reasons."))
    return {one.rpartition(".")[2] for one in found}


def test_only_what_draws_reads_the_facts_of_reasons() -> None:
    reads = {name for name in MODULES if names_of_reasons(name) & READERS}
    assert reads | {"dtctl.agent.records.reasons"} == {*READ_REASONS}


def test_only_few_modules_outside_render_make_sentences() -> None:
    says = {name for name in MODULES if "sentence" in names_of_reasons(name) and layer_of(name) != "render"}
    assert {name for name in says if not below(name, "dtctl.api")} | {"dtctl.agent.records.reasons"} == {*SAY_REASONS}


def test_no_record_of_the_agent_contains_the_sentence_of_a_reason() -> None:
    """A record has facts (`why`); they become a sentence where people read it."""
    from dtctl.agent import records
    from dtctl.agent.records.kinds import Record, fields_of

    modules = [import_module(f"{records.__name__}.{one.name}") for one in pkgutil.iter_modules(records.__path__)]
    found = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    kinds: Any = Record
    every = [one for one in found if issubclass(one, kinds) and one is not kinds]
    assert len(every) > 100
    assert [one.__name__ for one in every if "reason" in fields_of(one)] == []


def decisions_by_reasons(code: ast.AST) -> Iterator[str]:
    """Conditions on a reason and comparisons of one; `why_of(intent) or [fact("stopped")]` only chooses words."""
    for node in ast.walk(code):
        if any(map(_is_reason, _decides_by(node))):
            yield type(node).__name__ + ": " + ", ".join(map(ast.unparse, _decides_by(node)))


def _decides_by(node: ast.AST) -> list[ast.expr]:
    """The expressions on whose values it depends what happens."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [node.test]
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return node.values
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    return node.ifs if isinstance(node, ast.comprehension) else []


def _is_reason(node: ast.AST) -> bool:
    """Whether it is one.why, one["why"], one["reason"], why_of(one) or fact(...), or the length or a part of one."""
    if isinstance(node, ast.Attribute):
        return node.attr == "why"
    if isinstance(node, ast.Subscript):
        is_field = isinstance(node.slice, ast.Constant) and node.slice.value in ("why", "reason")
        return is_field or _is_reason(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        makes = node.func.id in ("why_of", "fact", "said", "sentence")
        return makes or (node.func.id in ("len", "bool", "list", "any", "all") and any(map(_is_reason, node.args)))
    return False


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('one["why"] == other["why"]', 1),
        ('[fact("ending")] == why_of(one)', 1),
        ('a if one["why"][:1] else b', 1),
        ("if task.why: pass", 1),
        ('len(one["why"]) > 1', 1),
        ('not one["reason"]', 1),
        ("[one for one in every if one.why]", 1),
        ('one["why"] or [fact("stopped")]', 0),
        ('one["loss"] == "hung"', 0),
        ("why is None", 0),
    ],
)
def test_a_decision_by_a_reason_is_found(code: str, found: int) -> None:
    assert len(list(decisions_by_reasons(ast.parse(code)))) == found


def test_no_decision_reads_a_reason() -> None:
    """State that decides is a field of its own; a reason is words, which may be cut, translated or left out."""
    layers = ("dtctl.agent", "dtctl.operations", "dtctl.cli", "dtctl.plan", "dtctl.transport")
    inside = [name for name in MODULES if below(name, *layers) and name not in READ_REASONS]
    found = {name: list(decisions_by_reasons(tree(name))) for name in inside}
    assert {name: every for name, every in found.items() if every} == {}
