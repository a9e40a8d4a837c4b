"""Commands with a mistake each, as people type them, and what each is told: exit code, reason and remedy.

They are typed in a directory with CLUSTER as its cluster.yaml; nobody listens where its hosts are.
"""

from __future__ import annotations

CLUSTER = """\
name: demo
ssh: {port: 1, connect_timeout: 5s, identity_file: key}
hosts:
  node-[1-3]: {ssh: 127.0.0.1}
jobs:
  ps: {hosts: [node-1]}
  worker: {hosts: "node-[1-2]"}
spares: [node-3]
trainer:
  command: [python, train.py]
"""

FILE = "dtctl init"
LISTS = "dtctl -h    lists the commands"
GRAMMAR = "write worker:1, worker, worker:0-3, @HOST or @HOST[1-4]"
DURATION = "is not a duration such as 500ms, 30s, 5m or 2h, or a number of seconds"


def of(command: str) -> str:
    """The remedy of a command line that cannot be read."""
    return f"{command} -h    shows what it takes"


Row = tuple[str, int, str, str]
"""Words, exit code, reason, remedy. In the words '' is an empty one, and quotes count as for a shell."""

WORDS: list[Row] = [
    ("nosuch", 2, "there is no command 'nosuch'", LISTS),
    ("stauts", 2, "there is no command 'stauts'", "did you mean 'status'?"),
    ("lgos", 2, "there is no command 'lgos'", "did you mean 'logs'?"),
    ("--nosuch", 2, "dtctl has no option --nosuch", LISTS),
    ("-c cluster.yaml status", 2, "-c is an option of commands", "for example, dtctl status -c cluster.yaml"),
    ("--color purple status", 2, "--color is 'purple', expected auto, always or never", "for example, --color never"),
    ("up --zzz", 2, "dtctl up has no option --zzz", of("dtctl up")),
    ("up -o yaml", 2, "-o is 'yaml', expected text or json", "write, for example, -o text"),
    ("plan -o xml", 2, "-o is 'xml', expected text or json", "write, for example, -o text"),
    ("status -o yaml", 2, "-o is 'yaml', expected text or json", "write, for example, -o text"),
    ("stop -o yaml", 2, "-o is 'yaml', expected text or json", "write, for example, -o text"),
    ("explain -o yaml", 2, "-o is 'yaml', expected text or json", "write, for example, -o text"),
    ("explain nosuchword", 2, "there is nothing to explain about 'nosuchword'", "dtctl explain    lists it all"),
    ("explain worker.prot", 2, "there is nothing to explain about 'worker.prot'", "did you mean 'worker'?"),
    ("events -o yaml", 2, "-o is 'yaml', expected text or json", "write, for example, -o text"),
    ("gc -o yaml", 2, "-o is 'yaml', expected text or json", "write, for example, -o text"),
    ("runs -o table", 2, "-o is 'table', expected text or json", "write, for example, -o text"),
    ("checkpoints -o yaml", 2, "-o is 'yaml', expected text or json", "write, for example, -o text"),
    ("validate -o yaml", 2, "-o is 'yaml', expected text or json", "write, for example, -o text"),
    ("stop -o", 2, "-o needs a value", "write -o text|json"),
    ("status -c", 2, "-c needs a value", "write -c FILE"),
    ("up --set", 2, "--set needs a value", "write --set PATH=VALUE"),
    ("stop --grace", 2, "--grace needs a value", "write --grace 30s"),
    ("logs --tail", 2, "--tail needs a value", "write --tail N|all"),
    ("wait --timeout", 2, "--timeout needs a value", "write --timeout 2h"),
    ("init --template", 2, "--template needs a value", "write --template NAME"),
    ("up -i", 2, "-i needs a value", "write -i FILE"),
    ("up --local=3", 2, "--local takes no value", "write it alone: dtctl up --local"),
    ("up --replace=yes", 2, "--replace takes no value", "write it alone: dtctl up --replace"),
    ("status --watch=3", 2, "--watch takes no value", "write it alone: dtctl status --watch"),
    ("gc --all=3", 2, "--all takes no value", "write it alone: dtctl gc --all"),
    ("status cluster.yaml", 2, "dtctl status does not take 'cluster.yaml'", "dtctl status -c cluster.yaml"),
    ("diagnose worker:0", 2, "dtctl diagnose does not take 'worker:0'", "commands that take tasks: logs, dump"),
    ("up a.yaml b.yaml", 2, "dtctl up does not take 'b.yaml'", "dtctl up -c b.yaml"),
    ("down worker:1", 2, "dtctl down does not take 'worker:1'", "commands that take tasks: logs, dump"),
    ("events worker:1", 2, "dtctl events does not take 'worker:1'", "commands that take tasks: logs, dump"),
    ("checkpoints extra", 2, "'extra' is none of ls, verify, pull, push, prune", "dtctl checkpoints verify    or ls"),
    ("checkpoints push", 2, "which one?", "dtctl checkpoints push ./best"),
    ("checkpoints push a b", 2, "push does not take 'b'", "dtctl checkpoints verify    or ls"),
    ("checkpoints --into x", 2, "--into is about checkpoints push", "dtctl checkpoints push --into"),
    ("checkpoints ls extra", 2, "ls does not take 'extra'", "dtctl checkpoints verify    or ls"),
    ("checkpoints --keep 3", 2, "--keep is about checkpoints prune", "dtctl checkpoints prune --keep"),
    ("checkpoints pull", 2, "where to?", "dtctl checkpoints pull DIR"),
    ("checkpoints prune", 2, "how many are to stay?", "dtctl checkpoints prune --keep 5"),
    ("checkpoints prune --keep 1", 2, "prune removes checkpoints, so it asks first", "prune --keep N --yes"),
    ("checkpoints verify --limit soon", 2, "'soon' is not", "write, for example, 30s"),
    ("gc extra", 2, "dtctl gc does not take 'extra'", of("dtctl gc")),
    ("runs extra", 2, "dtctl runs does not take 'extra'", of("dtctl runs")),
    ("schema extra", 2, "dtctl schema does not take 'extra'", of("dtctl schema")),
    ("validate a b", 2, "dtctl validate does not take 'b'", of("dtctl validate")),
    ("init a b", 2, "dtctl init does not take 'b'", of("dtctl init")),
    ("replace a b c", 2, "dtctl replace does not take 'c'", of("dtctl replace")),
    ("stop --now", 2, "dtctl stop has no option --now", "did you mean '--grace'?"),
    ("down -y --force", 2, "dtctl down has no option --force", "did you mean '--yes'?"),
    ("restart --all", 2, "dtctl restart has no option --all", of("dtctl restart")),
    ("logs --lines 5", 2, "dtctl logs has no option --lines", "did you mean '--tail'?"),
    ("runs --run x", 2, "dtctl runs has no option --run", of("dtctl runs")),
    ("check -y", 2, "dtctl check has no option -y", of("dtctl check")),
    ("push -y", 2, "dtctl push has no option -y", of("dtctl push")),
    ("top", 2, "dtctl top draws on a terminal, and here is none", "dtctl status --watch"),
    ("metrics --csv --plot", 2, "--csv and --plot exclude each other", "leave one of them out"),
    ("metrics --plot -f", 2, "--follow and --plot exclude each other", "leave one of them out"),
    ("metrics --log", 2, "--log is about curves", "add --plot"),
    ("report --format pdf", 2, "--format is 'pdf', expected html or md", "write, for example, --format html"),
    ("report -O nowhere/a.html", 2, "nowhere is no directory", "-O names a file in one that is there"),
    ("metrics --points 0", 2, "--points is 0, expected a whole number from 1 to 2000", "for example, --points 20"),
    ("tensorboard --port 70000", 2, "--port is 70000, expected a whole number from 0 to 65535", "--port 20"),
    ("dump -o xml", 2, "-o is 'xml', expected text or json", "write, for example, -o text"),
    ("restart", 2, "dtctl restart needs TASK...", "write dtctl restart TASK..."),
    ("exec", 2, "dtctl exec needs [TASK|@HOST]... -- COMMAND...", "write dtctl exec [TASK|@HOST]... -- COMMAND..."),
    ("exec --", 2, "dtctl exec needs [TASK|@HOST]... -- COMMAND...", "dtctl exec -h    shows more"),
    ("ssh", 2, "dtctl ssh needs TASK|HOST", "write dtctl ssh TASK|HOST"),
    ("replace", 2, "dtctl replace needs HOST", "write dtctl replace HOST [NEWHOST]"),
    ("events -n 0", 2, "-n is 0, expected a whole number of 1 or more", "write, for example, -n 20"),
    ("events -n -3", 2, "-n is -3, expected a whole number of 1 or more", "write, for example, -n 20"),
    ("events -n x", 2, "-n is 'x', expected a whole number of 1 or more", "write, for example, -n 20"),
    ("help", 2, "there is no command 'help'", "dtctl -h    shows what it takes"),
    ("help logs", 2, "there is no command 'help'", "dtctl logs -h    shows what it takes"),
    ("ps", 2, "there is no command 'ps'", "did you mean this? dtctl status"),
    ("kill worker:1", 2, "there is no command 'kill'", "did you mean this? dtctl stop worker:1"),
    ("tail worker:0", 2, "there is no command 'tail'", "did you mean this? dtctl logs -f worker:0"),
    ("version", 2, "there is no command 'version'", "did you mean this? dtctl --version"),
    ("rm -y", 2, "there is no command 'rm'", "did you mean this? dtctl down -y"),
    ("cluster.yaml", 2, "'cluster.yaml' is a file, and no command", "did you mean this? dtctl up cluster.yaml"),
    ("worker:1", 2, "'worker:1' is a task, and no command", "did you mean this? dtctl logs worker:1"),
    ("@node-1", 2, "'@node-1' is a task, and no command", "did you mean this? dtctl logs @node-1"),
    ("-f logs", 2, "-f is an option of commands", "for example, dtctl logs -f"),
    ("--local up", 2, "--local is an option of commands", "for example, dtctl up --local"),
    ("-y", 2, "-y is an option of commands", "for example, dtctl down -y"),
    ("STATUS", 2, "there is no command 'STATUS'", "did you mean 'status'?"),
    ("status --json", 2, "dtctl status has no option --json", "did you mean '-o json'?"),
    ("logs --grpe loss", 2, "dtctl logs has no option --grpe", "did you mean '--grep'?"),
    ("up --dry", 2, "dtctl up has no option --dry", "did you mean '--dry-run'?"),
    ("up --restart", 2, "dtctl up has no option --restart", "did you mean '--replace'?"),
    ("up -f cluster.yaml worker:1", 2, "dtctl up does not take 'worker:1'", "commands that take tasks: logs, dump"),
    ("events -n=5", 2, "-n is '=5', expected a whole number of 1 or more", "write, for example, -n 20"),
    ("up --ports-from 2.400", 2, "--ports-from is '2.400', expected a whole number from 1 to 65535", "--ports-from 20"),
    ("up --ports-from 80000", 2, "--ports-from is 80000, expected a whole number from 1 to 65535", "--ports-from 20"),
    ("logs -g", 2, "-g needs a value", "write -g"),
    ("status -u", 2, "-u needs a value", "write -u NAME"),
]
"""The command line itself."""

FILES: list[Row] = [
    *(
        (f"{command} nosuch.yaml", 3, "nosuch.yaml: there is no such file", FILE)
        for command in ("up", "validate", "plan", "push", "allow", "up --dry-run")
    ),
    *(
        (f"{command} -c nosuch.yaml", 3, "nosuch.yaml: there is no such file", FILE)
        for command in ("status", "trust", "stop", "down -y", "logs", "gc", "runs", "wait", "exec -c nosuch.yaml -- x")
        if "exec" not in command
    ),
    ("up ..", 3, "..: this is a directory, expected a file", "or name the file: -c FILE"),
    ("check -i nosuch", 2, "-i nosuch is no file", "the private key to log in with"),
    ("up -i ..", 2, "-i .. is no file", "the private key to log in with"),
    ("status -c ..", 3, "..: this is a directory, expected a file", "or name the file: -c FILE"),
    ("validate train.py", 3, "train.py: the file is empty", FILE),
    ("up --set nothing", 3, "--set nothing: 'nothing' is not an override", "write --set path=value"),
    ("up --set =1", 3, "--set =1: '=1' is not an override", "write --set path=value"),
    ("up --set name=", 3, "--set name=: name is empty", "name: digits"),
    ("up --set 'name=a b'", 3, "name is 'a b', expected at most 63 letters", "name: digits"),
    ("up --set nmae=x", 3, "--set nmae=x: nmae is not a key here", "did you mean 'name'?"),
    ("push --set nmae=x", 3, "--set nmae=x: nmae is not a key here", "did you mean 'name'?"),
    ("plan --set trainer.args=5", 3, "trainer.args is 5, expected a mapping of flags", "for example, args:"),
    ("validate --set name.x=1", 3, "name is 'demo', so x cannot be set in it", "set it whole: --set 'name=...'"),
    ("up --set trainer.command=", 3, "trainer.command is missing", "command: [python, train.py]"),
    ("up --set grace=soon", 3, "grace is 'soon', expected a duration", "for example, grace: 2m"),
    ("up --set jobs.worker.port=70000", 3, "jobs.worker.port is 70000, expected a whole number", "port: 2222"),
    ("up --set jobs.wrker.port=2300", 3, "jobs.wrker has no hosts", "for example, hosts: [gpu-1]"),
    ("up --set jobs.ps.hosts=node-9", 3, "names node-9, which is not in hosts", "did you mean 'node-"),
]
"""The cluster file, and what is set over it."""

TASKS: list[Row] = [
    *(
        (f"{command} wrker{rest}", 2, "there is no job 'wrker' in this cluster", "did you mean 'worker'?")
        for command, rest in (("stop", ""), ("restart", ""), ("logs", ""), ("logs worker:0", ""), ("exec", " -- true"))
    ),
    *(
        (f"{command} worker:9{rest}", 2, "there is no task worker:9", "the last one is worker:1")
        for command, rest in (("stop", ""), ("restart", ""), ("logs", ""), ("ssh", ""), ("exec", " -- true"))
    ),
    *(
        (f"{command} @node-9{rest}", 2, "there is no host 'node-9' in this cluster", "did you mean 'node-")
        for command, rest in (("stop", ""), ("restart", ""), ("logs", ""), ("ssh", ""), ("exec", " -- true"))
    ),
    *(
        (f"stop {word}", 2, "is not a task", GRAMMAR)
        for word in ("worker:x", "worker:", ":0", "worker:1:2", "worker:0,", "''", "@", "worker:-1")
    ),
    ("stop worker:3-1", 2, "'worker:3-1' names no task: 3 is more than 1", GRAMMAR),
    ("stop worker:0-99", 2, "there is no task worker:99", "the last one is worker:1"),
    ("logs worker:0-999999999999", 2, "there is no task worker:999999999999", "the last one is worker:1"),
    ("stop @node-[1", 2, "'node-[1' has an unmatched bracket", "write ranges as in gpu-[1-4]"),
    ("stop node-1", 2, "'node-1' is a host, and no task", "write @node-1 for the tasks on it"),
    ("stop 'worker 1'", 2, "there is no job 'worker 1'", "did you mean 'worker'?"),
    ("ssh nosuch", 2, "there is no host or job 'nosuch' in this cluster", "node-1, node-2, ps, worker"),
    ("ssh nod-1", 2, "there is no host or job 'nod-1' in this cluster", "did you mean 'node-1'?"),
    ("ssh worker", 2, "worker is on 2 hosts", "name one: node-1, node-2"),
    ("trust node-9", 2, "there is no host or job 'node-9'", "did you mean 'node-"),
    ("exec worker:0", 2, "no command to run: write it after --", "dtctl exec worker:0 -- nvidia-smi"),
    ("exec true", 2, "no command to run: write it after --", "dtctl exec worker:0 -- nvidia-smi"),
    ("replace node-9", 2, "node-9 has no task in demo", "did you mean 'node-"),
    ("replace node-1 node-9", 2, "there is no host 'node-9' in this cluster", "did you mean 'node-"),
    ("replace node-1 node-2", 2, "node-2 has tasks of its own: worker:1", "hosts without a task: node-3"),
]
"""Tasks and hosts that are not there."""

VALUES: list[Row] = [
    *(
        (f"{command} {span}", 2, DURATION, "write, for example, 30s")
        for command in ("stop --grace", "down --yes --grace", "wait --timeout")
        for span, shown in (
            ("soon", "soon"),
            ("-1", "-1"),
            ("5x", "5x"),
            ("nan", "nan"),
            ("1e400", "1e400"),
            ("''", ""),
        )
    ),
    *(
        (f"logs --since {moment}", 2, "nor a time such as 10:30 or 2026-05-01T12:00", "--since 10m")
        for moment in ("yesterday", "2026-13-45", "-5m", "''")
    ),
    *(
        (f"logs --until {moment}", 2, "nor a time such as 10:30 or 2026-05-01T12:00", "--until 10m")
        for moment in ("noon", "25:00", "2026-13-01")
    ),
    ("logs -f --until 10m", 2, "-f and --until exclude each other", "leave one of them out"),
    ("logs -f --save logs", 2, "-f and --save exclude each other", "leave one of them out"),
    ("logs --errors -g x", 2, "--errors and -g exclude each other", "leave one of them out"),
    ("logs -p -a", 2, "-p and --all-attempts exclude each other", "leave one of them out"),
    ("logs -C 2", 2, "-C is about lines that are found", "add -g PATTERN, or --errors"),
    ("logs -g x -C 1001", 2, "-C is 1001, expected a whole number from 0 to 1000", "write, for example, -C 20"),
    ("logs -o yaml", 2, "-o is 'yaml', expected text, json or jsonl", "write, for example, -o text"),
    *((f"logs -n {lines}", 2, "is not a number of lines", "a number, or all") for lines in ("many", "-5", "1.5", "''")),
    ("logs -g '['", 2, "--grep '[' is not a regular expression: unterminated character set", "put a backslash before"),
    ("logs -g '(?P<'", 2, "--grep '(?P<' is not a regular expression", "put a backslash before"),
    *(
        (f"{command} --run {run}", 2, "is not the id of a run", "dtctl runs    lists them")
        for command in ("logs", "status", "stop", "down -y")
        for run in ("../../etc/passwd", "''", "-x", "'a b'")
    ),
    *(
        (f"{command} --run nosuch", 2, "there is no run 'nosuch'", "dtctl runs")
        for command in ("logs", "status", "stop", "down -y", "events", "wait", "checkpoints")
    ),
    ("init --template nosuch", 2, "there is no template 'nosuch'", "templates: cifar10"),
    ("init .", 2, "already exists", "dtctl init DIR    writes to another directory"),
    ("up -u 'a b'", 2, "'a b' cannot be the name of a user", "a user's name has letters"),
    ("status -u -oX", 2, "'-oX' cannot be the name of a user", "a user's name has letters"),
    ("up -J 'a b'", 2, "'a b' is not a host to log in to", "write [USER@]HOST[:PORT]"),
    ("down", 2, "down removes the run's logs, so it asks first", "dtctl down --yes"),
]
"""What options are given, and questions that nobody can answer."""

ALONE = (
    *("restart worker:1", "events", "wait", "logs -f", "events -f"),
    *("logs @node-1 -n 3", "trust node-1", "status -o json"),
)
"""Commands that ask one host, or tell of each by itself."""

AWAY: list[Row] = [
    (
        words,
        4,
        "(127.0.0.1:1) refuses connections" if words in ALONE else ": connections are refused",
        "does sshd run there, and is 1 its port?",
    )
    for words in (
        *ALONE,
        "up -q",
        "status",
        "logs",
        "stop",
        "runs",
        "checkpoints",
        "push -q",
        "exec -- true",
        "down -y",
        "gc --dry-run",
        "report",
        "dashboard",
        "stop --run demo-20260101-000000-aaaa",
        "replace node-2 -y",
        "diagnose",
        "dump",
        "metrics",
    )
]
"""Hosts where nobody answers."""
