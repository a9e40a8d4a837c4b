"""The trainers' container on this host: the script that gets its image, and the command lines that run it.

It has the host's network, processes and shared memory, and the user of the host, so everything that the agent knows of
trainers by their pids also applies inside. Only trainers have DTCTL_KEY, not the process that runs the container.
"""

from __future__ import annotations

import os
import re

from ..host import paths
from . import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, List, Mapping, Optional, Tuple

    from ..records.spec import Container, Engine, Environment

SCRIPT = """\
for name in $DTCTL_ENGINES; do
    program=$(command -v "$name") || continue
    case $name in apptainer | singularity) break ;; esac
    "$program" info > /dev/null && break
    echo "$program is installed, but does not work for this user" >&2
    program=
done
[ -n "$program" ] || { echo "no program that runs containers works on this host; tried: $DTCTL_ENGINES" >&2; exit 1; }
pulled= options=
case $name in
    apptainer | singularity)
        image=$DTCTL_PREFIX.sif
        case $DTCTL_WHAT in
            /*.sif) image=$DTCTL_WHAT; [ -r "$image" ] || { echo "cannot read $image" >&2; exit 1; } ;;
            *.sif) cp "$DTCTL_WHAT" "$image" ;;
            *.tar) "$program" build "$image" "docker-archive:$DTCTL_WHAT" ;;
            *://*) "$program" pull "$image" "$DTCTL_WHAT" ;;
            *) "$program" pull "$image" "docker://$DTCTL_WHAT" ;;
        esac || exit ;;
    *)
        before=$("$program" images --quiet --no-trunc)
        image=$DTCTL_WHAT
        case $image in
            *.tar) image=$("$program" load --input "$image") && image=${image##*: } ;;
            *) "$program" image inspect "$image" > /dev/null 2>&1 || "$program" pull "$image" ;;
        esac || exit
        "$program" image inspect --format '{{range .RepoDigests}}{{.}} {{end}}' "$image"
        image=$("$program" image inspect --format '{{.Id}}' "$image") || exit
        case $before in *"$image"*) ;; *) pulled=1 ;; esac
        case $name in
            podman) options=$(podman info --format '{{.Host.Security.Rootless}} {{.Host.OCIRuntime.Name}}') ;;
            docker) options=$(docker info --format '{{.SecurityOptions}}') ;;
        esac ;;
esac
echo "$program runs the image $image"
env -i PROGRAM="$program" ENGINE="$name" IMAGE="$image" PULLED="$pulled" OPTIONS="$options" env -0 > "$DTCTL_AFTER"
"""

_PROGRAMS = {"podman": "podman", "docker": "docker", "apptainer": "apptainer singularity"}

_WHICH = 'for python; do command -v "$python" && exit; done; echo "the image has no $*" >&2; exit 1'
_KEPT = ("USER", "LOGNAME")
"""Variables of the session that are kept inside: many programs query the user's name, which the image does not know."""

_CLIENTS_OWN = r"(?:LD_|XDG_|DOCKER_|CONTAINER|REGISTRY_).*|HOME|PATH|TMPDIR|DTCTL_KEY"
"""Variables that what runs the container heeds itself."""


def programs(engine: Optional[Engine]) -> str:
    """The programs that may run it, the preferred one first."""
    return _PROGRAMS[engine] if engine else " ".join(_PROGRAMS.values())


def found(after: Mapping[str, str]) -> Container:
    """The container that the script has recorded."""
    engine, facts, gid = after["ENGINE"], after["OPTIONS"], os.getgid()
    options: List[str] = []
    if engine == "podman" and facts.startswith("true"):
        options += ["--userns", "keep-id"]
        options += ["--group-add", "keep-groups"] if facts.endswith("crun") else []
    elif engine == "docker" and "rootless" not in facts:  # else the user of the host is root inside
        options += ["--user", "%d:%d" % (os.getuid(), gid)]
        options += [word for one in os.getgroups() if one != gid for word in ("--group-add", str(one))]
    return {
        "program": after["PROGRAM"],
        "engine": "apptainer" if engine == "singularity" else engine,  # type: ignore[typeddict-item]
        "image": after["IMAGE"],
        "pulled": bool(after["PULLED"]),
        "options": options,
    }


class Box:
    """A container of an environment that has been made. `directory`: that of the environment."""

    def __init__(self, root: str, directory: str, container: Container, wanted: Environment, marks: List[str]) -> None:
        self._container = container
        self._options = wanted["options"]
        self._mounts = [root, *marks]
        self.home = os.path.join(directory, "home")
        self._label = "dtctl.environment=%s" % os.path.basename(directory)

    def inherited(self, outside: Mapping[str, str]) -> Dict[str, str]:
        """The variables that a process inside inherits; PATH is the image's."""
        names = [name for name in outside if name in _KEPT or name.lower() in environment.PROXIES]
        return {**{name: outside[name] for name in names}, "HOME": self.home}

    def words(
        self,
        name: str,
        argv: Iterable[str],
        inside: Mapping[str, str],
        outside: Mapping[str, str],
        cwd: str,
        secrets: Iterable[str] = (),
    ) -> Tuple[List[str], Dict[str, str]]:
        """The command line that runs a command in it with the variables `inside`, and its own variables."""
        container, (first, *more) = self._container, argv
        gpus = _gpus(container["engine"]) if inside.get("CUDA_VISIBLE_DEVICES") != "-1" else []
        places = [path for path in [*self._mounts, cwd] if os.path.isdir(path)]
        places = list(dict.fromkeys(each for path in places for each in (path, os.path.realpath(path))))
        if container["engine"] == "apptainer":
            prefix = os.path.basename(container["program"]).upper() + "ENV_"
            words = [container["program"], "exec", "--cleanenv", "--no-home", "--pwd", cwd]
            words += [word for path in places for word in ("--bind", path)]
            words += [*gpus, *self._options, container["image"], first, *more]
            return words, {**outside, **{prefix + own: value for own, value in inside.items()}}
        by_value = {own for own in inside if re.fullmatch(_CLIENTS_OWN, own)}.difference(secrets)
        given = ["%s=%s" % (own, inside[own]) if own in by_value else own for own in sorted(inside)]
        words = [container["program"], "run", "--rm", "--name", name, "--label", self._label, "--pull", "never"]
        words += ["--network", "host", "--pid", "host", "--ipc", "host", "--security-opt", "label=disable"]
        words += ["--sig-proxy=false", "--log-driver", "none", "--workdir", cwd, *container["options"], *gpus]
        words += [word for path in places for word in ("--volume", "%s:%s" % (path, path))]
        words += [word for own in given for word in ("--env", own)]
        words += [*self._options, "--entrypoint", first, container["image"], *more]
        return words, {**outside, **{own: value for own, value in inside.items() if own not in by_value}}

    def probe(self, python: Optional[str], outside: Mapping[str, str], path: str) -> str:
        """Shell text that records its interpreter."""
        import shlex

        name, argv = "dtctl-" + os.urandom(8).hex(), ["/bin/sh", "-c", _WHICH, "sh"]
        argv += [python] if python else ["python3", "python"]
        words, variables = self.words(name, argv, {"HOME": self.home, "CUDA_VISIBLE_DEVICES": "-1"}, outside, self.home)
        more = ["%s=%s" % each for each in variables.items() if outside.get(each[0]) != each[1]]
        return "%s > %s\n" % (" ".join(map(shlex.quote, ["env", *more, *words])), shlex.quote(path))

    def removal(self, name: str) -> List[str]:
        """The command that removes the container of this name and everything in it; empty: none is needed."""
        return [] if self._container["engine"] == "apptainer" else [self._container["program"], "rm", "--force", name]


def name_of(run: str, task: str, attempt: int) -> str:
    """The container's name, unique for each attempt: an earlier container may not be removed yet."""
    return "dtctl-%s-%s-%d" % (run, task.replace(":", "-"), attempt)


def of_spec(root: str, wanted: Optional[Environment], marks: environment.Marks) -> Optional[Box]:
    """The container of a spec; None for another environment, or none."""
    if wanted is None or wanted["container"] is None or wanted["directory"] is None:
        return None
    directory = os.path.join(root, "environments", paths.component(wanted["directory"], "environment"))
    return Box(root, directory, wanted["container"], wanted, marks.expand(wanted["mounts"]))


def _gpus(engine: str) -> List[str]:
    if os.path.exists("/dev/nvidiactl"):
        words = {"podman": ["--device", "nvidia.com/gpu=all"], "docker": ["--gpus", "all"], "apptainer": ["--nv"]}
        return words[engine]
    if os.path.exists("/dev/kfd"):
        return ["--rocm"] if engine == "apptainer" else ["--device", "/dev/kfd", "--device", "/dev/dri"]
    return []


def forget(container: Container, name: str) -> List[List[str]]:
    """The commands that remove containers that a crash has left, and the image if it was pulled for the environment."""
    program = container["program"]
    if container["engine"] == "apptainer":
        return []
    prune = [program, "container", "prune", "--force", "--filter", "label=dtctl.environment=%s" % name]
    return [prune, *([[program, "image", "rm", container["image"]]] if container["pulled"] else [])]
