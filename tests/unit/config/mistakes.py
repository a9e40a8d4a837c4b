"""Cluster files with one mistake each, and the message that it earns: (message, file)."""

from __future__ import annotations

GOOD = """\
name: digits
hosts:
  ps-a: 10.0.0.10
  gpu-[1-4]: {ssh: "10.0.0.2[1-4]", gpus: 2}
jobs:
  ps: {hosts: ps-a}
  worker: {hosts: "gpu-[1-4]"}
trainer:
  command: [python, train.py]
"""


def swap(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


def top(line: str) -> str:
    """The good file with a line before `hosts`, its second."""
    return swap("hosts:", f"{line}\nhosts:")


def trainer(lines: str) -> str:
    """The good file with more lines of `trainer`, from its tenth on."""
    return f"{GOOD}  {lines}\n"


DURATION = "a duration such as 500ms, 30s, 5m or 2h, or a number of seconds"
ON_HOSTS = "a path on the hosts: absolute, from ~/, or relative to ~/dtctl/NAME"
MAPPING = "a mapping (lines of KEY: VALUE)"
SINGLE = "text, a number, true or false"
VARIABLE = "the name of a variable: letters, digits and _, not starting with a digit"
NAME = "at most 63 letters, digits, '.', '_' or '-', the first of them a letter or digit"
HOST_NAMES = "one or more names of hosts: a list, or text; ranges as in gpu-[1-4] are names too"
WORDS = "one or more words: a list, or text that is split as a shell would split it"
TARGET = "[USER@]HOST[:PORT], of letters, digits and .-_:%@[]"
USER = "a user's name, of letters, digits, '.', '_', '-', '+', '@' and '\\'"

KEYS = [
    ("7:32: jobs.worker.prot is not a key here", swap('"gpu-[1-4]"}', '"gpu-[1-4]", prot: 1}')),
    ("4:37: hosts.gpu-[1-4].adress is not a key here", swap("gpus: 2", "adress: x")),
    ("4:37: hosts.gpu-[1-4].port is not a key here", swap("gpus: 2", "port: 22")),
    ("2:1: nmae is not a key here", swap("name: digits", "name: digits\nnmae: x")),
    ("2:8: dirs.outptu is not a key here", top("dirs: {outptu: /x}")),
    ("2:14: checkpoint.dirs is not a key here", top("checkpoint: {dirs: /x}")),
    ("2:7: ssh.zebra is not a key here", top("ssh: {zebra: 1}")),
    ("3:16: hosts.ps-a.ssh.tarket is not a key here", swap("10.0.0.10", "{ssh: {tarket: x}}")),
    (
        "2:1: name is here a second time; the first is at line 1, column 1",
        swap("name: digits", "name: digits\nname: x"),
    ),
    (
        "4:46: hosts.gpu-[1-4].gpus is here a second time; the first is at line 4, column 37",
        swap("gpus: 2}", "gpus: 2, gpus: 3}"),
    ),
    ("4:37: a key must be text", swap("gpus: 2", "[a]: 2")),
    ("2:12: recovery.retries is not a key here", top("recovery: {retries: 1}")),
    ("2:15: coordinator.host is not a key here", top("coordinator: {host: gpu-1}")),
]

KINDS = [
    (f"1:7: name is 'a b', expected {NAME}", swap("digits", "a b")),
    (f"1:7: name is '-a', expected {NAME}", swap("digits", "-a")),
    (f"1:7: name is '{'a' * 57}...', expected {NAME}", swap("digits", "a" * 64)),
    ("4:43: hosts.gpu-[1-4].gpus is 'two', expected a whole number from 0 to 1024", swap("gpus: 2", "gpus: two")),
    ("4:43: hosts.gpu-[1-4].gpus is -1, expected a whole number from 0 to 1024", swap("gpus: 2", "gpus: -1")),
    ("4:43: hosts.gpu-[1-4].gpus is 2.0, expected a whole number from 0 to 1024", swap("gpus: 2", "gpus: 2.0")),
    ("4:43: hosts.gpu-[1-4].gpus is true, expected a whole number from 0 to 1024", swap("gpus: 2", "gpus: true")),
    ("4:43: hosts.gpu-[1-4].gpus is '2', expected a whole number from 0 to 1024", swap("gpus: 2", "gpus: '2'")),
    ("6:27: jobs.ps.port is 70000, expected a whole number from 1 to 65535", swap("ps-a}", "ps-a, port: 70000}")),
    (
        "6:37: jobs.ps.tasks_per_host is 0, expected a whole number from 1 to 1024",
        swap("ps-a}", "ps-a, tasks_per_host: 0}"),
    ),
    ("2:10: success is 'led', expected auto, lead or all-workers", top("success: led")),
    (
        "2:11: strategy is 'async', expected auto, async-ps, sync-ps, in-graph, ps-strategy, mirrored, ddp or kvstore",
        top("strategy: async"),
    ),
    ("2:18: recovery.mode is 'always', expected auto, task, gang or never", top("recovery: {mode: always}")),
    (f"2:19: recovery.stall is 'on', expected auto, off or {DURATION}, more than 0", top("recovery: {stall: on}")),
    (
        f"2:26: recovery.host_timeout is true, expected never or {DURATION}, more than 0",
        top("recovery: {host_timeout: true}"),
    ),
    ("2:20: recovery.reboot is 'no', expected auto or never", top("recovery: {reboot: no}")),
    ("2:20: recovery.retry[0] is 256, expected a whole number from 1 to 255", top("recovery: {retry: [256]}")),
    ("2:23: recovery.permanent is 2, expected a list", top("recovery: {permanent: 2}")),
    ("2:27: recovery.allow_scratch is 'yes', expected true or false", top("recovery: {allow_scratch: yes}")),
    ("2:12: fail_fast is 'no', expected true or false", top("fail_fast: no")),
    (f"2:18: active_deadline is 'never', expected none or {DURATION}, more than 0", top("active_deadline: never")),
    (f"2:16: start_timeout is 'none', expected {DURATION}, more than 0", top("start_timeout: none")),
    (f"2:9: settle is 'off', expected auto or {DURATION}", top("settle: off")),
    (f"2:6: ttl is a list, expected none or {DURATION}, more than 0", top("ttl: [1d]")),
    ("2:7: keep is -1, expected a whole number of 0 or more", top("keep: -1")),
    ("2:14: target_step is 1.5, expected a whole number of 0 or more", top("target_step: 1.5")),
    ("2:21: coordinator.port is 0, expected a whole number from 1 to 65535", top("coordinator: {port: 0}")),
    (
        "6:33: jobs.ps.depends_on is a mapping, expected names of jobs: a list, which may be empty, or text",
        swap("ps-a}", "ps-a, depends_on: {worker: 1}}"),
    ),
    (f"2:8: grace is 'soon', expected {DURATION}", top("grace: soon")),
    (f"2:8: grace is -1, expected {DURATION}", top("grace: -1")),
    (f"2:8: grace is .inf, expected {DURATION}", top("grace: .inf")),
    (f"2:8: grace is a list, expected {DURATION}", top("grace: [30s]")),
    (f"2:24: ssh.connect_timeout is 0, expected {DURATION}, more than 0", top("ssh: {connect_timeout: 0}")),
    (
        "2:21: recovery.backoff is '60s..1s'"
        ", expected a duration such as 5s, or the shortest and the longest as in 1s..60s",
        top("recovery: {backoff: 60s..1s}"),
    ),
    (
        "2:21: recovery.backoff is '1..x'"
        ", expected a duration such as 5s, or the shortest and the longest as in 1s..60s",
        top("recovery: {backoff: 1..x}"),
    ),
    (
        "2:26: recovery.max_restarts is 'many', expected a whole number of 0 or more",
        top("recovery: {max_restarts: many}"),
    ),
    ("2:18: ssh.host_keys is 'no', expected strict or accept-new", top("ssh: {host_keys: no}")),
    (f"2:13: ssh.user is '-oX', expected {USER}", top("ssh: {user: -oX}")),
    ("2:13: ssh.port is '22', expected a whole number from 1 to 65535", top("ssh: {port: '22'}")),
    (f"2:13: ssh.jump is 'a b', expected {TARGET}", top("ssh: {jump: a b}")),
    ("10:15: trainer.keep_proxy is 'yes', expected true or false", trainer("keep_proxy: yes")),
    (f"6:7: jobs.ps is a list, expected {MAPPING}", swap("{hosts: ps-a}", "[ps-a]")),
    (f"6:6: jobs.ps is empty, expected {MAPPING}", swap(" {hosts: ps-a}", "")),
    (
        f"2:8: hosts is a list, expected {MAPPING}",
        swap('hosts:\n  ps-a: 10.0.0.10\n  gpu-[1-4]: {ssh: "10.0.0.2[1-4]", gpus: 2}\n', "hosts: [ps-a]\n"),
    ),
    (f"3:9: hosts.ps-a is a list, expected {MAPPING}, or text for the key 'ssh'", swap("10.0.0.10", "[10.0.0.10]")),
    (f"3:9: hosts.ps-a is true, expected {TARGET}", swap("10.0.0.10", "true")),
    (
        "3:19: hosts.ps-a.address is '1.2.3.4:22', expected a name or an IP address, without a port",
        swap("10.0.0.10", "{address: '1.2.3.4:22'}"),
    ),
    ("3:21: hosts.ps-a.transport is 'lcoal', expected ssh or local", swap("10.0.0.10", "{transport: lcoal}")),
    ("3:18: hosts.ps-a.python is '', expected text", swap("10.0.0.10", "{python: ''}")),
    (
        f"2:14: dirs.data is '~bob/x', expected {ON_HOSTS}",
        top("dirs: {data: ~bob/x}"),
    ),
    *(
        (f"{place} is {url!r}, expected {ON_HOSTS}, and no URL", text)
        for place, url, text in (
            ("2:16: dirs.output", "gs://bucket/x", top("dirs: {output: gs://bucket/x}")),
            ("2:14: dirs.data", "s3://b", top("dirs: {data: s3://b}")),
            ("2:19: checkpoint.dir", "hdfs://n/x", top("checkpoint: {dir: hdfs://n/x}")),
        )
    ),
    (
        "2:22: ssh.identity_file is 'file:///k', expected a path here, without control characters, and no URL",
        top("ssh: {identity_file: file:///k}"),
    ),
    (f"2:7: dirs is '/data', expected {MAPPING}", top("dirs: /data")),
    (f"2:13: checkpoint is '/data', expected {MAPPING}", top("checkpoint: /data")),
    (
        f"9:21: trainer.command[1] is a list, expected {SINGLE}",
        swap("command: [python, train.py]", "command: [python, [a]]"),
    ),
    (f"9:12: trainer.command is an empty list, expected {WORDS}", swap("command: [python, train.py]", "command: []")),
    (f"9:12: trainer.command is '', expected {WORDS}", swap("command: [python, train.py]", "command: ''")),
    (
        f'9:12: trainer.command is "python \'a", expected {WORDS} (no closing quotation)',
        swap("command: [python, train.py]", "command: python 'a"),
    ),
    (
        "9:21: trainer.command[1] is 'a\\x00b', expected text without a NUL character",
        swap("command: [python, train.py]", 'command: [python, "a\\0b"]'),
    ),
    ("10:9: trainer.code is 'a\\x00b', expected text without a NUL character", trainer('code: "a\\0b"')),
]

HOSTS = [
    ("4:3: hosts: 'gpu-[1-x]': '[1-x]' is not a range", swap("  gpu-[1-4]:", "  gpu-[1-x]:")),
    ("4:3: hosts: 'gpu-[1-4' has an unmatched bracket", swap("  gpu-[1-4]:", "  gpu-[1-4:")),
    ("4:3: hosts: 'gpu-[4-1]': the range 4-1 runs backwards", swap("  gpu-[1-4]:", "  gpu-[4-1]:")),
    ("4:3: hosts: 'gpu-[1-20000]' stands for more than 10000 names", swap("  gpu-[1-4]:", "  gpu-[1-20000]:")),
    (
        "4:3: hosts has the key 'gpu 1', expected the name of a host, or of several with a range as in gpu-[1-4]",
        swap("  gpu-[1-4]:", "  gpu 1:"),
    ),
    (
        "4:3: hosts: '-b' cannot be the name of a host"
        ", expected letters, digits, '.', '_' and '-', starting with a letter or digit",
        swap("  gpu-[1-4]:", "  gpu-1,-b:"),
    ),
    ("4:20: hosts.gpu-[1-4].ssh: 10.0.0.2[1-3] makes 3 values, but gpu-[1-4] makes 4 hosts", swap("2[1-4]", "2[1-3]")),
    ("4:20: hosts.gpu-[1-4].ssh: '10.0.0.2[4-1]': the range 4-1 runs backwards", swap("2[1-4]", "2[4-1]")),
    (
        "3:19: hosts.ps-a.address: 10.0.0.[1-2] makes 2 values, but ps-a makes 1 host",
        swap("10.0.0.10", '{address: "10.0.0.[1-2]"}'),
    ),
    (
        "3:22: hosts.ps-a.ssh.jump: gate-[1-2] makes 2 values, but ps-a makes 1 host",
        swap("10.0.0.10", '{ssh: {jump: "gate-[1-2]"}}'),
    ),
    (
        "4:3: hosts.gpu-[1-4] names gpu-2, which hosts.gpu-2 already names",
        swap("  ps-a: 10.0.0.10", "  gpu-2: 10.0.0.10"),
    ),
    ("3:3: hosts.ps-a,ps-a names ps-a more than once", swap("  ps-a: 10.0.0.10", '  "ps-a,ps-a": 10.0.0.10')),
    ("3:9: hosts.ps-a: 'a@-b' is not a host to log in to", swap("10.0.0.10", "a@-b")),
    ("3:9: hosts.ps-a: 'a@b@' is not a host to log in to", swap("10.0.0.10", "a@b@")),
    ("3:9: hosts.ps-a: 'ps:99999' has the port 99999", swap("10.0.0.10", "ps:99999")),
    (
        "3:15: hosts.ps-a.ssh: 'a@b' names a user, and so does user beside it",
        swap("10.0.0.10", "{ssh: {target: a@b, user: c}}"),
    ),
    (
        "3:15: hosts.ps-a.ssh: 'b:22' names a port, and so does port beside it",
        swap("10.0.0.10", "{ssh: {target: 'b:22', port: 22}}"),
    ),
    (
        "3:10: hosts.ps-a has both transport: local and ssh, expected one of them",
        swap("10.0.0.10", "{ssh: x, transport: local}"),
    ),
    (
        "3:15: hosts.ps-a.ssh: '~nobody-here/id' has no such home directory",
        swap("10.0.0.10", "{ssh: {identity_file: ~nobody-here/id}}"),
    ),
]

JOBS = [
    ("6:15: jobs.ps.hosts names ps-b, which is not in hosts", swap("hosts: ps-a", "hosts: ps-b")),
    (
        "6:22: jobs.ps.hosts[1] names gpu-[5-6], which are not in hosts",
        swap("hosts: ps-a", 'hosts: [ps-a, "gpu-[3-6]"]'),
    ),
    ("6:16: jobs.ps.hosts[0]: 'gpu-[1' has an unmatched bracket", swap("hosts: ps-a", 'hosts: ["gpu-[1"]')),
    (
        "6:15: jobs.ps.hosts is 'ps a', expected the name of a host, or of several with a range as in gpu-[1-4]",
        swap("hosts: ps-a", "hosts: ps a"),
    ),
    ("6:3: jobs.ps has no hosts", swap("{hosts: ps-a}", "{}")),
    (f"6:15: jobs.ps.hosts is an empty list, expected {HOST_NAMES}", swap("hosts: ps-a", "hosts: []")),
    (f"6:15: jobs.ps.hosts is a mapping, expected {HOST_NAMES}", swap("hosts: ps-a", "hosts: {a: 1}")),
    (
        "7:3: jobs has the key 'w-1', expected the name of a job: letters, digits and _, starting with a letter",
        swap("worker:", "w-1:"),
    ),
    (
        "6:27: jobs.ps.port is 65536, expected a whole number from 1 to 65535",
        swap("hosts: ps-a", "hosts: ps-a, port: 65536"),
    ),
    (
        "6:35: jobs.ps: ps:1 would listen past the last port, 65535",
        swap("hosts: ps-a", "hosts: [ps-a, ps-a], port: 65535"),
    ),
    (
        "7:38: jobs.worker: ps:0 and worker:0 would both listen on port 2222 of gpu-1",
        swap('ps-a}\n  worker: {hosts: "gpu-[1-4]"', 'gpu-1, port: 2222}\n  worker: {hosts: "gpu-[1-4]", port: 2222'),
    ),
    (
        "7:57: jobs.worker: ps:0 and worker:1 would both listen on port 2223 of gpu-1 (and 3 more pairs of tasks)",
        swap(
            'ps-a}\n  worker: {hosts: "gpu-[1-4]"',
            '"gpu-[1-4]", port: 2223}\n  worker: {hosts: "gpu-[1-4]", tasks_per_host: 2, port: 2222',
        ),
    ),
]

TRAINER = [
    ("8:1: trainer is missing, and jobs.ps has no command of its own", swap("  command: [python, train.py]", "")),
    (
        "1:1: trainer is missing, and jobs.ps has no command of its own",
        swap("trainer:\n  command: [python, train.py]\n", ""),
    ),
    ("10:9: trainer.code is 'nowhere', but there is no directory HERE/nowhere", trainer("code: nowhere")),
    (
        "10:9: trainer.code is 'cluster.yaml', but there is no directory HERE/cluster.yaml",
        trainer("code: cluster.yaml"),
    ),
    ("10:13: trainer.env_file is 'nofile', but there is no file HERE/nofile", trainer("env_file: nofile")),
    ("10:11: trainer.env.A is empty, expected a value", trainer("env: {A: }")),
    (f"10:9: trainer.env has the key '1C', expected {VARIABLE}", trainer("env: {1C: x}")),
    (
        "10:9: trainer.env has the key 'DTCTL_RUN', expected a name that does not start with DTCTL_",
        trainer("env: {DTCTL_RUN: x}"),
    ),
    (f"10:12: trainer.env.A is a list, expected {SINGLE}", trainer("env: {A: [1]}")),
    ("10:12: trainer.env.A is 'a\\x00b', expected text without a NUL character", trainer('env: {A: "a\\0b"}')),
    (f"10:8: trainer.env is a list, expected {MAPPING}", trainer("env: [A=1]")),
    ("10:12: trainer.secrets is 'KEY', expected a list", trainer("secrets: KEY")),
    (f"10:13: trainer.secrets[0] is 'A B', expected {VARIABLE}", trainer("secrets: [A B]")),
    (
        "10:9: trainer.env.KEY stands in trainer.secrets too, expected in one of them",
        trainer("env: {KEY: x}\n  secrets: [KEY]"),
    ),
    (
        "10:10: trainer.args has the key '--x', expected the name of a flag without its dashes",
        trainer("args: {--x: 1}"),
    ),
    (
        "10:10: trainer.args has the key 'a b', expected the name of a flag without its dashes",
        trainer("args: {a b: 1}"),
    ),
    (
        "10:13: trainer.args.x is a mapping, expected text, a number, true, false, or a list of these",
        trainer("args: {x: {y: 1}}"),
    ),
    (
        "10:13: trainer.args.x is a list, expected text, a number, true, false, or a list of these",
        trainer("args: {x: [1, [2]]}"),
    ),
    (f"10:13: trainer.args[1] is a mapping, expected {SINGLE}", trainer("args: [a, {b: 1}]")),
    (
        "10:9: trainer.args is '--x=1 --y=2', expected a mapping of flags, or a list of words",
        trainer("args: --x=1 --y=2"),
    ),
    (
        "10:12: trainer.dialect is 'tensorflwo', expected tensorflow, flags, tf_config, template, pytorch, jax, mxnet, "
        "cluster_spec or none",
        trainer("dialect: tensorflwo"),
    ),
    ("10:12: trainer.dialect is template, but there is no template", trainer("dialect: template")),
    (
        "11:3: trainer has a template, which the dialect flags does not use",
        trainer("dialect: flags\n  template: ['{task}']"),
    ),
    ("10:13: trainer.template: {ps_hots} is not a field of a template", trainer("template: '--a={ps_hots}'")),
    (
        "10:13: trainer.template: {ps_hosts|tab} cannot be, expected a list of addresses and space",
        trainer("template: '{ps_hosts|tab}'"),
    ),
    (
        "10:13: trainer.template: {task|space} cannot be, expected a list of addresses and space",
        trainer("template: '{task | space}'"),
    ),
    ("10:21: trainer.template[1]: {wat} is not a field of a template", trainer("template: ['--a', '{wat}']")),
    (
        "10:14: trainer.template[0]: {data_dir} has no value, because dirs.data is not set",
        trainer("template: ['{data_dir}']"),
    ),
    (
        "6:32: jobs.ps.template[0]: {task_idx} is not a field of a template",
        swap("hosts: ps-a", "hosts: ps-a, template: ['{task_idx}']"),
    ),
    (
        "6:30: jobs.ps.dialect is template, but there is no template",
        swap("hosts: ps-a", "hosts: ps-a, dialect: template"),
    ),
]

ORDER = [
    (
        "2:11: strategy is sync-ps, but there is no job 'ps'",
        top("strategy: sync-ps").replace("  ps: {hosts: ps-a}\n", ""),
    ),
    ("2:11: strategy is ddp, which uses no ps, but there is a job 'ps'", top("strategy: ddp")),
    (
        "2:11: strategy is ps-strategy, whose workers are led by a chief, but there is no job 'chief'",
        top("strategy: ps-strategy"),
    ),
    (
        "6:34: jobs.ps.depends_on[0] names workre, which is not in jobs",
        swap("hosts: ps-a", "hosts: ps-a, depends_on: [workre]"),
    ),
    ("6:33: jobs.ps.depends_on is ps itself", swap("hosts: ps-a", "hosts: ps-a, depends_on: ps")),
    (
        "6:21: jobs.ps.depends_on closes a cycle: worker:0 waits for ps, ps waits for worker:0",
        swap("hosts: ps-a", "hosts: ps-a, depends_on: worker"),
    ),
    (
        "7:12: jobs.worker.depends_on closes a cycle: worker:0 waits for ps, ps waits for worker:0",
        swap("hosts: ps-a}\n  worker: {", "hosts: ps-a, depends_on: [worker]}\n  worker: {depends_on: [ps], "),
    ),
]

RECOVERY = [
    (
        "2:39: recovery.max_restarts is 3, but recovery.mode is never",
        top("recovery: {mode: never, max_restarts: 3}"),
    ),
    (
        "2:36: recovery.permanent has 42, which recovery.retry has too",
        top("recovery: {retry: [42], permanent: [1, 42]}"),
    ),
]

SPARES = [
    ("2:9: spares names gpu-9, which is not in hosts", top("spares: gpu-9")),
    (
        "2:17: spares[1] names gpu-2, which jobs.worker uses",
        top("spares: [gpu-9, gpu-2]").replace("  ps-a", "  gpu-9:\n  ps-a"),
    ),
    ("2:9: spares: 'gpu-[1' has an unmatched bracket", top('spares: "gpu-[1"')),
]

COORDINATOR = [
    (
        "7:38: jobs.worker: the coordinator and worker:0 would both listen on port 2221 of gpu-1",
        swap('"gpu-[1-4]"}', '"gpu-[1-4]", port: 2221}'),
    ),
    (
        "8:38: jobs.worker: the coordinator and worker:0 would both listen on port 3000 of gpu-1",
        top("coordinator: {port: 3000}").replace('"gpu-[1-4]"}', '"gpu-[1-4]", port: 3000}'),
    ),
]
