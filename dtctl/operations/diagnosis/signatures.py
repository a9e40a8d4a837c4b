"""The known signatures, one row each: what is seen, the facts that are read beside it, what it means, what to type.

The words of a log are tried in this order, the cause of an end before the rest of its log. Between [ and ] stands what
is left out where a field in it is not known. `docs/troubleshooting.md` is made from these rows.
"""

from __future__ import annotations

from typing import Any

from dtctl.operations.diagnosis import hosts, joins, waits
from dtctl.operations.diagnosis.signature import ENDED_SOMEHOW, WHOLE_LOG, Level, Signature


def _row(
    name: str, seen: str, means: str, *remedy: str, beside: str = "", level: Level = Level.ENDS, **matched: Any
) -> Signature:
    return Signature(name, level, seen, beside, means, remedy, **matched)


IN_LOGS = (
    _row(
        "left_out",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'",
        "{path} is in the code directory here, but is not pushed to the hosts, by the rule {rule}",
        "a line !/{entry} in .dtctlignore pushes it; then: dtctl up --replace",
        "or put it on each host, outside the code: dirs.data in cluster.yaml",
        beside="the code directory on this machine, and why a file of it is not pushed",
        pattern=(
            r"No such file or directory: b?['\"](?P<path>[^'\"\n]+)|"
            r"(?:can't open file '|(?<!File)NotFoundError: (?:\{\{[^}\n]*\}\} )?)(?P<file>[^\s;']+)['; :][^\n]*No such"
            r" file|"
            r"(?m:^[\w./-]+: (?P<argument>[^:\s\[]+): No such file or directory)|"
            r"No module named '?(?P<module>[\w.]+)"
        ),
        join=joins.left_out,
    ),
    _row(
        "estimator_missing",
        "AttributeError: module 'tensorflow' has no attribute 'estimator'",
        "TensorFlow[ {version}] on {hosts} has no tf.estimator, which 2.15 was the last to have",
        "dtctl exec {at} -- {python} -m pip install 'tensorflow<2.16'",
        WHOLE_LOG,
        beside="the version of TensorFlow on the host",
        pattern=r"tensorflow[\w.]*' has no attribute 'estimator'|No module named 'tensorflow_estimator",
        join=joins.version,
    ),
    _row(
        "tensorflow_1_program",
        "AttributeError: module 'tensorflow' has no attribute 'placeholder'",
        "the program is written for TensorFlow 1, and {hosts} has[ {version} of] TensorFlow 2",
        "in the program: import tensorflow.compat.v1 as tf",
        WHOLE_LOG,
        beside="the version of TensorFlow on the host",
        pattern=(
            r"module '(?:tensorflow|tensorflow\._api\.v2\.\w+)' has no attribute '"
            r"(?:contrib|placeholder|Session|ConfigProto|GPUOptions|app|flags|train|get_variable|layers|logging|gfile)'|"
            r"No module named 'tensorflow\.(?:contrib|examples)"
        ),
        join=joins.version,
    ),
    _row(
        "keras_3",
        "AttributeError: 'ShardedVariable' object has no attribute 'handle'",
        "Keras 3[ ({keras})] cannot do this with ParameterServerStrategy, MultiWorkerMirroredStrategy or cells of "
        "TensorFlow 1; Keras 2 can",
        "dtctl exec {at} -- {python} -m pip install tf_keras",
        "trainer.env.TF_USE_LEGACY_KERAS: '1' in cluster.yaml, then: dtctl up --replace",
        beside="the versions of TensorFlow and Keras on the host",
        pattern=(
            r"ShardedVariable.* has no attribute|not available with Keras 3|"
            r"(?:PerReplica|DistributedVariable).*keras|Only supports.*Keras 2"
        ),
        join=joins.version,
    ),
    _row(
        "tensorboard_missing",
        "TBNotInstalledError: TensorBoard is not installed, missing implementation for `tf.summary.scalar`",
        "summaries of TensorFlow 2 need the package tensorboard, which the Python of {hosts} lacks",
        "dtctl exec {at} -- {python} -m pip install tensorboard",
        beside="the Python of the task",
        pattern=r"TBNotInstalledError|TensorBoard is not installed",
        join=joins.python,
    ),
    _row(
        "module_missing",
        "ModuleNotFoundError: No module named 'sklearn'",
        "the Python of {hosts} lacks the module {module}",
        "dtctl exec {at} -- {python} -m pip install {package}    without {at}: on every host",
        "or name another Python: trainer.python",
        beside="the Python of the task, and the package that has the module",
        pattern=r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.]+)",
        join=joins.python,
    ),
    _row(
        "dialect_not_taken",
        "unrecognized arguments: --ps_hosts=...",
        "the trainer does not take the flags of TensorFlow's distributed programs ({flag})",
        "trainer.dialect: tf_config, or another (docs/dialects.md), in cluster.yaml, then: dtctl up --replace",
        pattern=(
            r"(?:unrecognized arguments:.*?|Unknown command line flag '|no such option:? )"
            r"(?P<flag>(?:--)?(?:ps_hosts|worker_hosts|chief_hosts|job_name|task_index|task_id)\b)"
        ),
    ),
    _row(
        "flag_wrong",
        "unrecognized arguments: --step_s=0.2",
        "the trainer does not accept its command line: {said}",
        "dtctl plan {task}    shows it",
        "correct trainer.args (or jobs.NAME.args) in cluster.yaml; then: dtctl up --replace",
        pattern=(
            r"(?P<said>unrecognized arguments: .+|Unknown command line flag .+|"
            r"the following arguments are required: .+|argument \S+: (?:invalid|expected|not allowed).+|"
            r"ambiguous option: .+|(?i:no such option):? .+|flag --\S+: .+|Flag --\S+ must .+|"
            r"Missing required flags?.*|IllegalFlagValueError.*)"
        ),
    ),
    _row(
        "port_taken",
        "UnknownError: Could not start gRPC server",
        "port {port} of {hosts} is taken[ by {holder}]",
        "dtctl gc    ends what old runs have left",
        "otherwise another port: jobs.NAME.port in cluster.yaml, then: dtctl up --replace",
        beside="who listens on the task's port",
        pattern=(
            r"[Aa]ddress already in use|Could not start gRPC server|Failed to add port to server|No address added out|"
            r"EADDRINUSE|[Ee]rrno:? 98\b"
        ),
        join=joins.port,
    ),
    _row(
        "address_wrong",
        'Could not interpret "gpu-b" as a host-port pair',
        "TensorFlow cannot use {said} as an address",
        "dtctl plan    shows all addresses",
        "correct hosts.NAME.address in cluster.yaml, then: dtctl up --replace",
        pattern=r"Could not interpret (?P<said>\S+) as a host-port pair",
    ),
    _row(
        "task_undefined",
        'InternalError: Task 7 was not defined in job "worker"',
        "the trainer takes itself for a task that its cluster does not have: {said}",
        "dtctl plan {task}    shows what it is told of its place",
        pattern=r"(?P<said>Task \d+ was not defined in job \S+|Job \S+ was not defined in cluster)",
    ),
    _row(
        "name_unresolved_in_log",
        "socket.gaierror: [Errno -2] Name or service not known",
        "{hosts} cannot resolve a name that the trainer uses",
        "dtctl diagnose    tries the names of all tasks on every host",
        "hosts.NAME.address: an IP address, in cluster.yaml; then: dtctl up --replace",
        pattern=r"Name or service not known|Temporary failure in name resolution|DNS resolution failed|gaierror",
    ),
    _row(
        "checkpoint_of_another_model",
        "NotFoundError: Key beta1_power not found in checkpoint",
        "the checkpoint[ {checkpoint}] is of another model: {said}",
        "dtctl checkpoints    shows what is there",
        "another directory (dirs.output, checkpoint.dir) or the model that it was saved by; then: dtctl up",
        beside="the newest checkpoint of the run",
        pattern=(
            r"(?P<said>Key \S+ not found in checkpoint|Tensor name \S+ not found in checkpoint.*|"
            r"Assign requires shapes of both tensors to match.*|size mismatch for .*|Missing key\(s\) in state_dict.*|"
            r"Unexpected key\(s\) in state_dict.*|Shape of variable .* doesn't match.*|"
            r"Received incompatible tensor with shape.*|Tensor's shape .* is not compatible with supplied.*)"
        ),
        join=joins.checkpoint,
    ),
    _row(
        "checkpoint_damaged",
        "DataLossError: Checksum does not match: stored 3 vs. calculated on the restored bytes 4",
        "a file is damaged, the checkpoint as a rule[ (the newest complete one is {checkpoint})]: {said}",
        "dtctl checkpoints    tells which are complete",
        "move the damaged one away, or recovery.allow_scratch: true to start over; then: dtctl up",
        beside="the newest checkpoint of the run",
        pattern=(
            r"(?P<said>(?i:data.?loss)(?:Error)?:? .*|Checksum does not match.*|Unable to open table file.*|"
            r"corrupted record .*|truncated record .*|PytorchStreamReader failed.*)"
        ),
        join=joins.checkpoint,
    ),
    _row(
        "checkpoint_missing",
        "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for /data/model.ckpt-100",
        "a checkpoint is not where the trainer looks for it[: {said}][; the newest complete one is {checkpoint} on "
        "{holder_host}]",
        "dtctl checkpoints    shows which host has what",
        "a directory that all hosts share (dirs.output), or the same files on each",
        beside="the newest checkpoint of the run",
        pattern=r"(?:TensorSliceReader.*?)?Failed to find any matching files for (?P<said>\S+)|TensorSliceReader",
        join=joins.checkpoint,
    ),
    _row(
        "diverged",
        "NanLossDuringTrainingError: NaN loss during training.",
        "the loss is no number any more: training has diverged",
        "dtctl metrics --plot loss    shows since when",
        "a smaller learning rate, or gradients that are clipped; restore a checkpoint from before",
        pattern=(
            r"Model diverged with loss = NaN|NanLossDuringTrainingError|NaN loss during training|"
            r"Invalid loss, terminating training|Tensor had (?:NaN|Inf)|"
            r"(?i:loss (?:is|became|=) (?:nan|infinite|not finite))"
        ),
    ),
    _row(
        "gpu_memory",
        "ResourceExhaustedError: OOM when allocating tensor with shape[8192,8192] ... by allocator GPU_0_bfc",
        "the memory of a GPU on {hosts} is too small, or shared[: GPU {gpu} has {used_bytes} of {memory_bytes} in use]",
        "dtctl exec {at} -- nvidia-smi    shows who uses it",
        "a smaller batch in trainer.args; fewer tasks a GPU (jobs.NAME.gpus_per_task)",
        beside="the GPUs of the host",
        pattern=(
            r"CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory|OutOfMemoryError: CUDA|CUBLAS_STATUS_ALLOC_FAILED|"
            r"(?:OOM when allocating|ran out of memory|failed to allocate).*(?:GPU|gpu|cuda)"
        ),
        join=joins.gpu,
    ),
    _row(
        "cuda_unusable",
        "CUDA driver version is insufficient for CUDA runtime version",
        "CUDA on {hosts} does not work for this program[; the driver is {driver}]: {said}",
        "dtctl exec {at} -- nvidia-smi    shows driver and CUDA",
        "dtctl exec {at} -- {python} -m pip install 'tensorflow[and-cuda]'    brings the libraries along",
        beside="the driver that nvidia-smi tells",
        pattern=(
            r"(?P<said>CUDA driver version is insufficient.*|(?:Could not load dynamic library|error while loading "
            r"shared libraries:|cannot open shared object file).*(?:cuda|cudnn|cublas|nccl|nvinfer).*|"
            r"\S*lib(?:cuda|cudart|cudnn|cublas|nccl)\S* cannot open shared object.*|Found no NVIDIA driver.*|"
            r"no kernel image is available.*|CUDNN_STATUS_NOT_INITIALIZED.*|DNN library is not found.*|"
            r"CUDA_ERROR_(?!OUT_OF_MEMORY)\w+.*|Torch not compiled with CUDA.*|CUDA error: (?!out of memory).*)"
        ),
        join=lambda facts, task, fields: {**joins.gpu(facts, task, fields), "python": facts.python(task)},
    ),
    _row(
        "disk_full",
        "OSError: [Errno 28] No space left on device",
        "a disk of {hosts} is full[: {free_bytes} of {size_bytes} left at {where}]",
        "dtctl gc    removes old runs and old code",
        "dtctl exec {at} -- df -h    shows the rest",
        "dtctl up    goes on from the newest checkpoint, as soon as there is room",
        beside="the file systems that the run writes to",
        pattern=r"No space left on device|ENOSPC|Errno 28\b|Disk quota exceeded|EDQUOT",
        join=joins.disk,
    ),
    _row(
        "host_memory",
        "MemoryError; std::bad_alloc; Cannot allocate memory",
        "{hosts} has too little memory for it[: {available_bytes} of {memory_bytes} are free now]",
        "dtctl exec {at} -- free -h",
        "a smaller batch in trainer.args, or fewer tasks on that host (jobs.NAME.hosts)",
        beside="the memory of the host",
        pattern=(
            r"\bMemoryError\b|std::bad_alloc|Cannot allocate memory|Unable to allocate .* for an array|"
            r"OOM when allocating|\bENOMEM\b|DefaultCPUAllocator: (?:not enough|can't allocate) memory|"
            r"(?i:out of memory)|RESOURCE_EXHAUSTED|ResourceExhausted"
        ),
        join=joins.memory,
    ),
    _row(
        "permission_denied",
        "PermissionError: [Errno 13] Permission denied: '/data/out'",
        "the trainer may not do that[ with {path}] on {hosts}, as the user that dtctl logs in as",
        "dtctl exec {at} -- ls -ld {path}",
        "change its owner there, or name another directory (dirs) in cluster.yaml",
        pattern=(
            r"(?:Permission denied|PermissionError|EACCES|Read-only file system|PERMISSION_DENIED|PermissionDenied)"
            r"(?:.*?['\"\s;:](?P<path>/[^'\":;\s]+))?"
        ),
    ),
    _row(
        "no_cpu_device",
        "NotFoundError: No CPU devices are available in this process",
        "the program asks TensorFlow for no CPU device at all (device_count of its session's configuration)",
        "dtctl plan {task}    shows its flags",
        WHOLE_LOG,
        pattern=r"No CPU devices are available",
    ),
    _row(
        "unknown_device",
        "InvalidArgumentError: /job:ps/replica:0/task:0/device:CPU:0 unknown device.",
        "another cluster's task answers at an address of this one, or the device filters leave it out: {said}",
        "dtctl gc    ends what old runs have left",
        "dtctl runs    shows which are live",
        pattern=r"(?P<said>\S*/job:\S+ unknown device|Unknown device:? \S+)",
    ),
    _row(
        "proxy",
        "failed to connect to all addresses; HTTP proxy returned response code 403",
        "a proxy stands between the tasks of {hosts}",
        "trainer.keep_proxy: false in cluster.yaml, which is the default, then: dtctl up --replace",
        pattern=r"(?i:http proxy returned|proxy error|via proxy|proxyconnect)",
    ),
    _row(
        "peer_restarted",
        "AbortedError: Graph handle is not found ... worker just restarted",
        "a task that it worked with was started again meanwhile; this follows from that loss and mends itself",
        "dtctl events    tells what was lost first",
        pattern=r"Graph handle is not found|[Ii]ncarnation mismatch|different incarnation|sync_token_q is closed",
    ),
    _row(
        "peer_lost",
        "UnavailableError: failed to connect to all addresses; last error: ... Connection refused",
        "it lost its connection to another task, or never had one",
        "dtctl diagnose    tries the network between all tasks",
        "dtctl events    tells what was lost first",
        beside="how the other tasks are",
        pattern=(
            r"UNAVAILABLE|Unavailable(?:Error|:)|PSUnavailableError|[Ff]ailed to connect|"
            r"Connection (?:refused|timed out|reset)|Socket closed|No route to host|Network is unreachable|heartbeat|"
            r"(?i:deadline.?exceeded)|"
            r"NCCL.*(?:error|failed)|[Gg]loo.*(?:error|failed|closed)|Broken pipe"
        ),
    ),
)
"""What logs tell, of an end or of a task that lives."""

BY_STATE = (
    _row(
        "cannot_run",
        "cannot run /nope: No such file or directory",
        "{hosts} cannot run {what}: {text}",
        "dtctl check    shows the Pythons of every host",
        "trainer.python, trainer.venv or the first word of trainer.command in cluster.yaml; then: dtctl up --replace",
        beside="the reason that the agent gives",
        join=joins.cannot_run,
    ),
    _row(
        "killed_for_memory",
        "killed by SIGKILL, and the kernel counts a process that it ended for want of memory",
        "the kernel ended it, because {hosts} ran out of memory[: {available_bytes} of {memory_bytes} are free now]",
        "dtctl exec {at} -- free -h",
        "a smaller batch in trainer.args, or fewer tasks on that host (jobs.NAME.hosts)",
        beside="how it ended, the kernel's count, the memory of the host",
        join=joins.killed,
    ),
    _row(
        "killed",
        "killed by SIGKILL, and dtctl did not do it",
        "somebody killed it, or the kernel for want of memory in its control group"
        "[; {available_bytes} of {memory_bytes} are free on {hosts} now]",
        "dtctl exec {at} -- free -h",
        "dtctl exec {at} -- dmesg -T    names the process, where the kernel shows it",
        beside="how it ended, the memory of the host",
        join=joins.killed_by(joins.KILL),
    ),
    _row(
        "illegal_instruction",
        "killed by SIGILL",
        "the program was built for another processor than that of {hosts}",
        "dtctl exec {at} -- lscpu    shows what it can",
        "another build, or another host (dtctl replace HOST)",
        beside="how it ended",
        join=joins.killed_by(joins.ILL),
    ),
    _row(
        "crashed",
        "killed by SIGSEGV (exit code 139)",
        "a library of the program crashed: as a rule two packages that do not fit together",
        WHOLE_LOG,
        "dtctl diagnose    compares the versions on all hosts",
        beside="how it ended",
        join=joins.killed_by(joins.SEGV),
    ),
    _row(
        "ended_itself",
        "exited 1: TensorFlow finds 0 GPUs here, not 2",
        "the program ended itself; what it said last should be its reason",
        "search its source for these words; correct trainer.args, its data or itself; then: dtctl up --replace",
        WHOLE_LOG,
        beside="how it ended, the last that it said",
        join=joins.ended_itself,
    ),
    _row(
        ENDED_SOMEHOW,
        "any other end",
        "unrecognised error[; last lines of {log_of}:]",
        WHOLE_LOG,
        join=lambda facts, task, fields: {},
    ),
)
"""Ends whose logs tell nothing that is known."""

BY_FACTS = (
    _row(
        "host_away",
        "the coordinator has lost a host",
        "{hosts} has been away for {away_s}: nobody can tell how {tasks} is",
        "dtctl ssh {host}    tells whether it can be reached from here",
        "dtctl replace {host}    moves its tasks",
        beside="when it was last heard, and its tasks",
        find=waits.away,
        level=Level.BLOCKS,
    ),
    _row(
        "coordinator_away",
        "the coordinator's host cannot be asked",
        "the coordinator's host {hosts} cannot be asked: nobody can tell how {tasks} is[; {why}]",
        "dtctl ssh {host}    shows whether it can be reached from here",
        "dtctl replace {host}    moves its tasks",
        beside="every other host is asked for itself",
        find=waits.coordinator_away,
        after_end=True,
        level=Level.BLOCKS,
    ),
    _row(
        "host_silent",
        "an agent has never called the coordinator",
        "{hosts} has not called the coordinator for {age_s}[: {missing}]",
        "open that port between the hosts, or choose another: coordinator.port in cluster.yaml",
        "dtctl exec {at} -- true    tells whether the host itself can be reached",
        beside="for how long the run has been up, and the coordinator's address",
        find=waits.silent,
        level=Level.BLOCKS,
    ),
    _row(
        "frozen",
        "a trainer is stopped by a signal (state T)",
        "{tasks} on {hosts} is frozen: a signal has stopped its process[ (pid {pid})]",
        "dtctl exec {at} -- kill -CONT {pid}    lets it go on",
        "dtctl restart {task}    starts it again",
        beside="the process, and who waits for it",
        find=waits.frozen,
        level=Level.BLOCKS,
    ),
    _row(
        "stalled",
        "no sign of progress for longer than recovery.stall",
        "{tasks} on {hosts} hangs: no sign of progress[ for {silent_s}][, in {frame}]; "
        "dtctl ends it and starts it again",
        "dtctl dump {task}    shows where it is, dtctl logs {task} -p where the attempt before was",
        "recovery.stall in cluster.yaml if that is usual",
        beside="the log, the steps and the checkpoints of the task",
        find=waits.stalled,
        level=Level.BLOCKS,
    ),
    _row(
        "hung_before",
        "a task was restarted because it made no progress",
        "{tasks} on {hosts} hung {times}, last at {last_at}[ ({reason})], and was restarted each time",
        "dtctl logs {task} -p    shows where the attempt before hung",
        "recovery.stall in cluster.yaml if so long a silence is usual",
        beside="the losses of the run, and the steps since the last of them",
        find=waits.hung,
        level=Level.SLOWS,
    ),
    _row(
        "name_unresolved",
        "a host cannot resolve the name in another task's address",
        "{from_hosts} cannot resolve {name}, the name in the address of {tasks} on {hosts}: {text}",
        "hosts.{host}.address: an IP address, in cluster.yaml; then: dtctl up --replace",
        "dtctl exec {from} -- getent hosts {name}    tells when it works",
        beside="the names as every host resolves them, who waits",
        find=waits.unreachable("unresolved"),
        level=Level.BLOCKS,
    ),
    _row(
        "firewall",
        "a task listens, and another host's attempts to connect time out",
        "{tasks} listens on {address}, but {from_hosts} cannot connect to it ({text}): a firewall, or no way between "
        "the hosts",
        "open port {port} of {hosts} for {from_hosts}, or choose another: jobs.NAME.port",
        "dtctl diagnose    tells when it works",
        beside="who listens, connections as every host tries them, who waits",
        find=waits.unreachable("timeout", "no_route", "denied", "other"),
        level=Level.BLOCKS,
    ),
    _row(
        "refused",
        "a task listens, and another host's attempts to connect are refused",
        "{tasks} listens on {address}, but {from_hosts} is refused there: a firewall rejects it"
        "[, or the name {name} leads to another machine]",
        "dtctl exec {from} -- getent hosts {name}    shows where the name leads",
        "open port {port} of {hosts} for {from_hosts}, or set hosts.{host}.address",
        beside="who listens, connections as every host tries them, who waits",
        find=waits.unreachable("refused"),
        level=Level.BLOCKS,
    ),
    _row(
        "never_listened",
        "not ready after 600 s: worker:0 runs but does not listen on gpu-a:2222 yet",
        "{tasks} on {hosts} ran, but did not listen on {address} within start_timeout",
        "dtctl logs {task}    shows what it did instead",
        "trainer.dialect: none in cluster.yaml for a program that serves nobody, then: dtctl up",
        beside="the reason of the run's end, the task's address",
        find=waits.never_ready,
    ),
    _row(
        "waits_for_one_that_is_over",
        "CreateSession still waiting for response from worker: /job:ps/replica:0/task:1, which has ended",
        "{tasks} on {hosts} has {state}, while others still need it",
        "dtctl restart {task}",
        "dtctl events    tells why it ended",
        beside="what the waiting task's log says, and how the other is",
        find=waits.over,
        level=Level.BLOCKS,
    ),
    _row(
        "waits_for_start",
        "CreateSession still waiting for response from worker: /job:ps/replica:0/task:1, which does not listen yet",
        "{tasks} on {hosts} is {state} for {state_s} and does not listen[ on {address}] yet",
        "dtctl logs {task}    shows what it does",
        beside="what the waiting task's log says, and how the other is",
        find=waits.deaf,
        level=Level.BLOCKS,
    ),
    _row(
        "waits",
        "CreateSession still waiting for response from worker: /job:ps/replica:0/task:1, which listens",
        "{tasks} on {hosts} listens[ on {address}], and is waited for all the same",
        "dtctl diagnose    tries the network between the hosts",
        "dtctl logs {task}    shows what it does",
        beside="what the waiting task's log says, and connections as its host tries them",
        find=waits.unexplained,
        level=Level.BLOCKS,
    ),
    _row(
        "diverging",
        "loss: nan in a log or an event file, and the training goes on",
        "the loss[ of {tasks}] is {loss}[ ({tag} in {path})][ at step {step}]: training has diverged, and goes on",
        "dtctl logs {task} -g loss    shows since when",
        "dtctl metrics --plot {tag}    shows since when",
        "dtctl stop, then a smaller learning rate, and a checkpoint from before",
        beside="the newest loss in logs and event files",
        find=hosts.diverged,
        level=Level.BLOCKS,
    ),
    _row(
        "disk_is_full",
        "nothing is left on a disk that the run writes to",
        "a disk of {hosts} is full: {free_bytes} of {size_bytes} left at {where}",
        "dtctl gc    removes old runs and old code",
        "dtctl exec {at} -- df -h    shows the rest",
        beside="the file systems of every host",
        find=hosts.full_disks,
        level=Level.BLOCKS,
    ),
    _row(
        "no_steps",
        "no task has told a step for half a minute",
        "no task has told a step for {silent_s}[; {idle} use no processor: they wait for something]",
        "dtctl diagnose    looks at every host and the network",
        "dtctl logs -f    shows what the tasks do",
        beside="the steps of all tasks, and who uses no processor",
        find=hosts.silent,
        level=Level.SLOWS,
    ),
    _row(
        "nobody_begins",
        "no task has told a step since the start, and none does anything",
        "no task has told a step in the {age_s} since the start, and none has done anything for {idle_s}"
        "[; {first} stopped first, {first_s} ago: the others may wait for it]",
        "dtctl dump {task}    shows where it is",
        "dtctl restart {task}    starts it again; recovery.first_step in cluster.yaml: dtctl does, after that time",
        beside="the processors, bytes and output of every task, and who was idle first",
        find=hosts.nobody_begins,
        level=Level.BLOCKS,
    ),
    _row(
        "not_begun",
        "a task has told no step since its start, and others have",
        "{tasks} on {hosts} has told no step in the {age_s} since its start, others did within {others_s}"
        "[; it has done nothing at all for {idle_s}]",
        "dtctl dump {task}    shows where it is",
        "dtctl restart {task}    starts it again; recovery.first_step in cluster.yaml: dtctl does, after that time",
        beside="what its peers took for their first step, or the lead; its processors, bytes and output",
        find=hosts.not_begun,
        level=Level.SLOWS,
    ),
    _row(
        "throttled",
        "a limit of processor time holds back one task and not most others of its job",
        "{tasks} on {hosts} may not use more than {used} processors: a limit of its control group holds it back "
        "{throttled_share} of the time",
        "dtctl exec {at} -- cat /proc/{pid}/cgroup    names the group: its limit is cpu.max, or cpu.cfs_quota_us",
        "dtctl replace {host}    moves its tasks",
        beside="cpu.stat of the task's control groups",
        find=hosts.throttled,
        level=Level.SLOWS,
    ),
    _row(
        "straggler",
        "a worker is far slower than the others of its job",
        "{tasks} on {hosts} makes {rate} steps/s, its peers {usual}"
        "[; load {load} on {cpus} CPUs][; {taker} takes {taker_cpus} of them]"
        "[; waits for processors {cpu_share} of the time][, for memory {memory_share}][, for the disk {disk_share}]"
        "[; {stolen_share} of the processors go to other guests][; {resent_share} of what it sends is sent again]"
        "[; only {memory_low} of the memory is free]",
        "dtctl diagnose    looks at its host",
        "dtctl exec {at} -- top -b -n 1    shows what runs there",
        "dtctl replace {host}    moves its tasks",
        beside="the rates of its peers; processors, memory, disk and network of its host",
        find=hosts.stragglers,
        level=Level.SLOWS,
    ),
    _row(
        "behind",
        "a task has told no step for long, and its peers go on",
        "{tasks} on {hosts} has told no step for {silent_s}, its peers for {others_s}"
        "[; load {load} on {cpus} CPUs][; {taker} takes {taker_cpus} of them]"
        "[; waits for processors {cpu_share} of the time][, for memory {memory_share}][, for the disk {disk_share}]",
        "dtctl diagnose    looks at its host",
        "dtctl logs {task}    shows what it does",
        beside="when its peers told their last step; its host",
        find=hosts.behind,
        level=Level.SLOWS,
    ),
    _row(
        "host_slow",
        "something is short on one host that is not on most others",
        "{hosts} is short of something that others are not: load {load} on {cpus} CPUs"
        "[; {taker} takes {taker_cpus} of them]"
        "[; waits for processors {cpu_share} of the time][; for memory {memory_share}][; for the disk {disk_share}]"
        "[; {stolen_share} of the processors go to other guests][; {resent_share} of what it sends is sent again]"
        "[; only {memory_low} of the memory is free]",
        "dtctl exec {at} -- top -b -n 1    shows what runs there",
        "dtctl replace {host}    moves its tasks",
        beside="load, pressure (/proc/pressure), steal and retransmissions of every host; processes of others",
        find=hosts.slow,
        level=Level.SLOWS,
    ),
    _row(
        "versions_differ",
        "hosts have several versions of what trains",
        "{package} is not the same everywhere: {versions}",
        "dtctl exec {at} -- PYTHON -m pip install {package}=={version}    with the PYTHON that dtctl plan shows",
        beside="the packages of every task's Python",
        find=hosts.versions,
        level=Level.NOTE,
    ),
)
"""What states and figures tell; some name who waits."""

SIGNATURES = (*IN_LOGS, *BY_STATE, *BY_FACTS)
