"""The kinds of values that cluster.yaml is made of."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from dtctl import durations, model
from dtctl.agent.records.values import READ_SCHEMES, URL_SCHEMES
from dtctl.config.document import KeyPath, Scalar
from dtctl.config.kinds import (
    SIZE_SCHEMA,
    UNFIT,
    Kind,
    ListOf,
    MapOf,
    Report,
    Unfit,
    choice,
    named_or,
    path,
    place,
    read_backoff,
    read_duration,
    read_size,
    text,
    whole,
    written,
)
from dtctl.config.names import CLUSTER_PATTERN, CLUSTER_WORDS, USER_WORDS
from dtctl.model import EVENTS, problem_of_url

_SINGLE = "text, a number, true or false"
_ANY_SCALAR = {"type": ["string", "number", "boolean"]}
_SECONDS = {"type": "number", "minimum": 0}

_DURATION_SCHEMA = {"anyOf": [_SECONDS, {"type": "string", "pattern": f"^{durations.PATTERN}$"}]}
_NAMES = r"[A-Za-z0-9._:%@+\\\[\],-]+"
"""The characters of names of hosts and users (`dtctl.config.names`), and of ranges in them."""


def _duration(most: str = "") -> Kind:
    """A duration above zero, and at most this long."""
    most_s = durations.seconds(most) if most else durations.LONGEST_S

    def read(raw: Any) -> float:
        duration = read_duration(raw)
        if duration == 0:
            raise Unfit()
        if duration > most_s:
            raise Unfit(f"a duration of at most {most}")
        return duration

    return Kind(f"{durations.WORDS}, more than 0", read, _DURATION_SCHEMA)


def _split_template(text: str) -> list[str]:
    """Splits like a shell, except at blanks within a field."""
    return shlex.split(model.FIELD.sub(lambda found: "{" + "|".join(filter(None, found.groups())) + "}", text))


def _read_env_value(raw: Any) -> str:
    if raw is None:
        raise Unfit("a value", 'write "" for an empty one')
    return written(raw)


def _read_env_name(raw: Any) -> str:
    name = written(raw)
    if name.startswith("DTCTL_"):
        raise Unfit("a name that does not start with DTCTL_", "dtctl itself sets those variables for every task")
    return str(_PLAIN_ENV_NAME.read(raw))


def _read_url(raw: Any) -> str:
    url = written(raw)
    if problem := problem_of_url(url):
        raise Unfit(problem, "write, for example, post: ${SLACK_URL} with the address in the variable SLACK_URL")
    return url


def _read_arg_value(raw: Any) -> str | bool:
    """True: the bare flag; False: no flag at all; text: its value."""
    if raw is None:
        return False
    if isinstance(raw, list):
        return ",".join(written(item) for item in raw)
    if isinstance(raw, Scalar) and isinstance(raw.value, bool):
        return raw.value
    return written(raw)


_PLAIN_ENV_NAME = text(
    "the name of a variable: letters, digits and _, not starting with a digit", r"[A-Za-z_][A-Za-z0-9_]*"
)

_HOST_NAMES = text(
    "the name of a host, or of several with a range as in gpu-[1-4]", r"[A-Za-z0-9\[][A-Za-z0-9_.,\[\]-]*"
)
_JOB_NAME = text(
    "the name of a job: letters, digits and _, starting with a letter",
    r"[A-Za-z][A-Za-z0-9_]*",
    "it becomes part of the trainers' flags: --ps_hosts",
)

Name = Annotated[str, text(CLUSTER_WORDS, CLUSTER_PATTERN)]
HostNames = Annotated[str, _HOST_NAMES]
JobName = Annotated[str, _JOB_NAME]
Text = Annotated[str, text("text")]
Target = Annotated[str, text("[USER@]HOST[:PORT], of letters, digits and .-_:%@[]", rf"(?!-){_NAMES}")]
User = Annotated[str, text(f"a user's name, of {USER_WORDS}", rf"(?!-){_NAMES}")]
Address = Annotated[
    str,
    text(
        "a name or an IP address, without a port",
        r"(?!-)(?!\[[^\]]*:)(?:[A-Za-z0-9._\[\],-]+|[A-Za-z0-9._\[\],-]*:[A-Za-z0-9._\[\],-]*:[A-Za-z0-9._:%\[\],-]*)",
    ),
]
_LOCAL_PATH = path("a path here, without control characters", r"[^\x00-\x1f\x7f]+")
LocalPath = Annotated[str, _LOCAL_PATH]


def _read_wheels(raw: Any) -> object:
    """Reads the directory of wheels. In earlier versions `true` had pip of this machine download and build wheels."""
    if isinstance(raw, Scalar) and isinstance(raw.value, bool):
        fill = "pip download --only-binary=:all: --dest wheels -r requirements.txt    fills one: wheels: wheels"
        raise Unfit(_WHEELS, fill if raw.value else "leave it out")
    return _LOCAL_PATH.read(raw)


_WHEELS = "a directory of wheels here"
WheelsDirectory = Annotated[str, Kind(_WHEELS, _read_wheels, _LOCAL_PATH.schema)]
_HOST_PATH = path(
    "a path on the hosts: absolute, from ~/, or relative to ~/dtctl/NAME",
    r"(?!~[^/])(?![\s\S]*\$[A-Za-z_{])[\s\S]+",
    "only ~ and ~/... stand for a home directory, and no variable is filled in",
)
HostPath = Annotated[str, _HOST_PATH]
WrittenPlace = Annotated[str, place(_HOST_PATH, URL_SCHEMES)]
ReadPlace = Annotated[str, place(_HOST_PATH, READ_SCHEMES)]
_CODE_PATH = text(
    "a path within the code directory",
    r"(?![/~])(?!(?:[\s\S]*/)?\.\.(?:/|$))[\s\S]+",
    "it travels with the code: trainer.code names the directory",
)
CodePath = Annotated[str, _CODE_PATH]
CodePaths = Annotated[
    tuple[str, ...], ListOf(_CODE_PATH, "paths within the code directory: a list, or text", lambda one: [one])
]


def _read_project(raw: Any) -> object:
    if isinstance(raw, Scalar) and raw.value is True:
        return "."
    return _CODE_PATH.read(raw)


CodeProject = Annotated[
    str,
    Kind(
        "true, or the path of a directory within the code directory",
        _read_project,
        {"anyOf": [{"enum": [True]}, _CODE_PATH.schema]},
        {"true": "."},
    ),
]
CondaEnvironment = Annotated[
    str,
    text(
        "an environment file within the code directory, or the name of an environment on the hosts",
        r"(?![/~-])(?!(?:[\s\S]*/)?\.\.(?:/|$))[\s\S]+",
    ),
]
ContainerImage = Annotated[
    str,
    text(
        "the name of an image, or a file .tar or .sif",
        r"(?!-)(?!(?:\S*/)?\.\.(?:/|$))\S+",
        "a file lies within the code directory, or is a path on the hosts: /images/tf.sif, ~/tf.sif",
    ),
]
ContainerEngine = Annotated[model.ContainerEngine, choice("podman", "docker", "apptainer")]
Modules = Annotated[
    tuple[str, ...],
    ListOf(
        text("the name of a module", r"[A-Za-z0-9][A-Za-z0-9._/+=:@-]*"),
        "names of modules: a list, or text that is split at blanks",
        str.split,
    ),
]
Port = Annotated[int, whole(1, 65535)]
FirstPort = Annotated[int, named_or({"auto": model.CHOSEN_PORT}, whole(1, 65535))]
Count = Annotated[int, whole(0)]
Gpus = Annotated[int, whole(0, 1024)]
TasksPerHost = Annotated[int, whole(1, 1024)]
PositiveCount = Annotated[int, whole(1)]
_DURATION = Kind(durations.WORDS, read_duration, _DURATION_SCHEMA)
_POSITIVE_DURATION = _duration()
ConnectTimeout = Annotated[float, _duration("1d")]  # the kernel accepts no timeout of weeks
KeepTime = Annotated[float, _duration("1d")]
Duration = Annotated[float, _DURATION]
PositiveDuration = Annotated[float, _POSITIVE_DURATION]
DurationOrNone = Annotated[float | None, named_or({"none": None}, _POSITIVE_DURATION)]
DurationOrNever = Annotated[float | None, named_or({"never": None}, _POSITIVE_DURATION)]
DurationOrAuto = Annotated[float | None, named_or({"auto": None}, _DURATION)]
_SIZE = Kind("a size such as 200MB or 1GB", read_size, {"type": "string", "pattern": SIZE_SCHEMA})
SizeOrNone = Annotated[int | None, named_or({"none": None}, _SIZE)]
StallLimit = Annotated[float | None, named_or({"auto": None, "off": 0.0}, _POSITIVE_DURATION)]
ReplaceTime = Annotated[float | None, named_or({"auto": None, "never": 0.0}, _POSITIVE_DURATION)]
Backoff = Annotated[
    tuple[float, float],
    Kind(
        "a duration such as 5s, or the shortest and the longest as in 1s..60s",
        read_backoff,
        {"anyOf": [_SECONDS, {"type": "string", "pattern": rf"^{durations.PATTERN}(\.\.{durations.PATTERN})?$"}]},
    ),
]
Transport = Annotated[str, choice(*model.TRANSPORTS)]
_EXIT_CODE = whole(1, 255)
ExitCodes = Annotated[tuple[int, ...], ListOf(_EXIT_CODE)]

_WORD = Kind(_SINGLE, written, _ANY_SCALAR)
_WORDS = "one or more words: a list, or text that is split as a shell would split it"
Arguments = Annotated[tuple[str, ...], ListOf(_WORD, _WORDS, shlex.split)]
Options = Annotated[
    tuple[str, ...],
    ListOf(
        text("an option in one word, as --mem=16G", r"-[^\0\n]+"),
        "options, each in one word, as [--mem=16G]: a list, or text that is split as a shell would split it",
        shlex.split,
    ),
]
Template = Annotated[tuple[str, ...], ListOf(_WORD, _WORDS, _split_template)]
Platform = Annotated[
    tuple[str, ...],
    ListOf(
        choice("flags", "env", *model.PLATFORM_NAMES, *(name.upper() for name in model.PLATFORM_NAMES)),
        "flags, env, or names as in [data_dir, OUTPUT_DIR, num_gpus]; an empty list for nothing",
        str.split,
        may_be_empty=True,
    ),
]
HostList = Annotated[
    tuple[str, ...],
    ListOf(
        _HOST_NAMES,
        "one or more names of hosts: a list, or text; ranges as in gpu-[1-4] are names too",
        lambda one: [one],
    ),
]
JobList = Annotated[
    tuple[str, ...],
    ListOf(_JOB_NAME, "names of jobs: a list, which may be empty, or text", lambda one: [one], may_be_empty=True),
]
_ENV_NAME = Kind(_PLAIN_ENV_NAME.description, _read_env_name, _PLAIN_ENV_NAME.schema)
Env = Annotated[Mapping[str, str], MapOf(_ENV_NAME, Kind(_SINGLE, _read_env_value, _ANY_SCALAR))]
EnvNames = Annotated[tuple[str, ...], ListOf(_ENV_NAME)]
HookName = Annotated[str, text("a name of letters, digits, '.', '_' and '-'", r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")]
HookEvents = Annotated[tuple[str, ...], ListOf(choice(*EVENTS), f"some of {', '.join(EVENTS)}", str.split)]
Url = Annotated[
    str,
    Kind("an address that begins with https:// or http://, or ${NAME}", _read_url, {"type": "string", "minLength": 1}),
]
Headers = Annotated[
    Mapping[str, str],
    MapOf(
        text("the name of a header", r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"),
        text("text without control characters", r"[^\x00-\x1f\x7f]+"),
    ),
]
HookTimeout = Annotated[float, _duration("60s")]  # the end of a run waits for it


class _FlagsOrList:
    """A mapping of flags, or a list of words."""

    _list = ListOf(_WORD)
    _flags = MapOf(
        text("the name of a flag without its dashes", r"[^\s=\x00-][^\s=\x00]*"),
        Kind(
            "text, a number, true, false, or a list of these",
            _read_arg_value,
            {"anyOf": [{"type": ["string", "number", "boolean", "null"]}, {"type": "array", "items": _ANY_SCALAR}]},
        ),
    )
    description = f"{_flags.description}; or {_list.description}"
    schema: Mapping[str, Any] = {"anyOf": [_flags.schema, _list.schema]}

    def take(self, raw: Any, path: KeyPath, report: Report) -> Any:
        if isinstance(raw, list | dict):
            return (self._list if isinstance(raw, list) else self._flags).take(raw, path, report)
        report(path, raw, "a mapping of flags, or a list of words")
        return UNFIT


Args = Annotated[Mapping[str, str | bool] | tuple[str, ...], _FlagsOrList()]
