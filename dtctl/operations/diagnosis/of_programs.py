"""What programs say that cannot begin: their modules, flags, ports and places: rows of table.py."""

from __future__ import annotations

from dtctl.operations.diagnosis import joins
from dtctl.operations.diagnosis.signature import WHOLE_LOG, Level, Signature, in_log

PROGRAM = (
    Signature(
        "estimator_missing",
        Level.ENDS,
        "AttributeError: module 'tensorflow' has no attribute 'estimator'",
        "the version of TensorFlow on the host",
        "TensorFlow[ {version}] on {hosts} has no tf.estimator, which 2.15 was the last to have",
        ("dtctl exec {at} -- {python} -m pip install 'tensorflow<2.16'", WHOLE_LOG),
        in_log(r"tensorflow[\w.]*' has no attribute 'estimator'|No module named 'tensorflow_estimator"),
        joins.version,
    ),
    Signature(
        "tensorflow_1_program",
        Level.ENDS,
        "AttributeError: module 'tensorflow' has no attribute 'placeholder'",
        "the version of TensorFlow on the host",
        "the program is written for TensorFlow 1, and {hosts} has[ {version} of] TensorFlow 2",
        ("in the program: import tensorflow.compat.v1 as tf", WHOLE_LOG),
        in_log(
            r"module '(?:tensorflow|tensorflow\._api\.v2\.\w+)' has no attribute '"
            r"(?:contrib|placeholder|Session|ConfigProto|GPUOptions|app|flags|train|get_variable|layers|logging|gfile)'|"
            r"No module named 'tensorflow\.(?:contrib|examples)"
        ),
        joins.version,
    ),
    Signature(
        "keras_3",
        Level.ENDS,
        "AttributeError: 'ShardedVariable' object has no attribute 'handle'",
        "the versions of TensorFlow and Keras on the host",
        "Keras 3[ ({keras})] cannot do this with ParameterServerStrategy, MultiWorkerMirroredStrategy or cells of "
        "TensorFlow 1; Keras 2 can",
        (
            "dtctl exec {at} -- {python} -m pip install tf_keras",
            "trainer.env.TF_USE_LEGACY_KERAS: '1' in cluster.yaml, then: dtctl up --replace",
        ),
        in_log(
            r"ShardedVariable.* has no attribute|not available with Keras 3|"
            r"(?:PerReplica|DistributedVariable).*keras|Only supports.*Keras 2"
        ),
        joins.version,
    ),
    Signature(
        "tensorboard_missing",
        Level.ENDS,
        "TBNotInstalledError: TensorBoard is not installed, missing implementation for `tf.summary.scalar`",
        "the Python of the task",
        "summaries of TensorFlow 2 need the package tensorboard, which the Python of {hosts} lacks",
        ("dtctl exec {at} -- {python} -m pip install tensorboard",),
        in_log(r"TBNotInstalledError|TensorBoard is not installed"),
        joins.python,
    ),
    Signature(
        "module_missing",
        Level.ENDS,
        "ModuleNotFoundError: No module named 'sklearn'",
        "the Python of the task, and the package that has the module",
        "the Python of {hosts} lacks the module {module}",
        (
            "dtctl exec {at} -- {python} -m pip install {package}    without {at}: on every host",
            "or name another Python: trainer.python",
        ),
        in_log(r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<module>[\w.]+)"),
        joins.python,
    ),
    Signature(
        "dialect_not_taken",
        Level.ENDS,
        "unrecognized arguments: --ps_hosts=...",
        "",
        "the trainer does not take the flags of TensorFlow's distributed programs ({flag})",
        ("trainer.dialect: tf_config, or another (docs/dialects.md), in cluster.yaml, then: dtctl up --replace",),
        in_log(
            r"(?:unrecognized arguments:.*?|Unknown command line flag '|no such option:? )"
            r"(?P<flag>(?:--)?(?:ps_hosts|worker_hosts|chief_hosts|job_name|task_index|task_id)\b)"
        ),
    ),
    Signature(
        "flag_wrong",
        Level.ENDS,
        "unrecognized arguments: --step_s=0.2",
        "",
        "the trainer does not accept its command line: {said}",
        (
            "dtctl plan {task}    shows it",
            "correct trainer.args (or jobs.NAME.args) in cluster.yaml; then: dtctl up --replace",
        ),
        in_log(
            r"(?P<said>unrecognized arguments: .+|Unknown command line flag .+|"
            r"the following arguments are required: .+|argument \S+: (?:invalid|expected|not allowed).+|"
            r"ambiguous option: .+|(?i:no such option):? .+|flag --\S+: .+|Flag --\S+ must .+|"
            r"Missing required flags?.*|IllegalFlagValueError.*)"
        ),
    ),
    Signature(
        "port_taken",
        Level.ENDS,
        "UnknownError: Could not start gRPC server",
        "who listens on the task's port",
        "port {port} of {hosts} is taken[ by {holder}]",
        (
            "dtctl gc    ends what old runs have left",
            "otherwise another port: jobs.NAME.port in cluster.yaml, then: dtctl up --replace",
        ),
        in_log(
            r"[Aa]ddress already in use|Could not start gRPC server|Failed to add port to server|No address added out|"
            r"EADDRINUSE|[Ee]rrno:? 98\b"
        ),
        joins.port,
    ),
    Signature(
        "address_wrong",
        Level.ENDS,
        'Could not interpret "gpu-b" as a host-port pair',
        "",
        "TensorFlow cannot use {said} as an address",
        ("dtctl plan    shows all addresses", "correct hosts.NAME.address in cluster.yaml, then: dtctl up --replace"),
        in_log(r"Could not interpret (?P<said>\S+) as a host-port pair"),
    ),
    Signature(
        "task_undefined",
        Level.ENDS,
        'InternalError: Task 7 was not defined in job "worker"',
        "",
        "the trainer takes itself for a task that its cluster does not have: {said}",
        ("dtctl plan {task}    shows what it is told of its place",),
        in_log(r"(?P<said>Task \d+ was not defined in job \S+|Job \S+ was not defined in cluster)"),
    ),
    Signature(
        "name_unresolved_in_log",
        Level.ENDS,
        "socket.gaierror: [Errno -2] Name or service not known",
        "",
        "{hosts} cannot resolve a name that the trainer uses",
        (
            "dtctl diagnose    tries the names of all tasks on every host",
            "hosts.NAME.address: an IP address, in cluster.yaml; then: dtctl up --replace",
        ),
        in_log(r"Name or service not known|Temporary failure in name resolution|DNS resolution failed|gaierror"),
    ),
)
