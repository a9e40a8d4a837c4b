"""Reads a TFJob of Kubeflow's training operator: `kind: TFJob`, with other documents beside it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dtctl.agent.host.secrets import hide_text, hides_next, is_secret_name
from dtctl.config.document import Document, KeyPath, Scalar
from dtctl.config.yaml12 import parse
from dtctl.errors import Place, clipped
from dtctl.rooms.importing.found import Found, FoundJob, Machine, Note, Source, check_count, fail
from dtctl.rooms.importing.written import scalar, words

_KIND = re.compile(
    r"^kind:[ \t]*[\"']?TFJob[\"']?[ \t]*(?:#.*)?$|^[ \t]*[{,]?[ \t]*\"kind\"[ \t]*:[ \t]*\"TFJob\"", re.MULTILINE
)
_BETWEEN = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_GPU = re.compile(r"(?:nvidia|amd)\.com/gpu$")
_JOBS = {
    "ps": "ps",
    "worker": "worker",
    "chief": "chief",
    "master": "master",
    "evaluator": "evaluator",
    "eval": "evaluator",
}


def is_tfjob(content: str) -> bool:
    return _KIND.search(content) is not None


def tfjob(text: Source) -> Found:
    """Raises ConfigError."""
    document = parse(_own_document(text.content), text.name)
    if document.problems:
        raise fail(document.problems[0].place, document.problems[0].summary, document.problems[0].hint)
    return _Reader(document, text.name).found()


def _own_document(content: str) -> str:
    """The document of the TFJob, at its own lines."""
    starts = [0, *(match.end() for match in _BETWEEN.finditer(content))]
    ends = [*(match.start() for match in _BETWEEN.finditer(content)), len(content)]
    parts = list(zip(starts, ends, strict=True))
    start, end = next((part for part in parts if is_tfjob(content[part[0] : part[1]])), parts[0])
    return "\n" * content.count("\n", 0, start) + content[start:end]


class _Reader:
    def __init__(self, document: Document, name: str) -> None:
        self.document, self.name = document, name
        self.notes: list[Note] = []
        self.settings: dict[str, tuple[str, Place]] = {}
        self.trainer: dict[str, tuple[str, Place]] = {}
        self.secrets: dict[str, Place] = {}
        self.mounts: list[Note] = []

    def at(self, *path: str | int) -> Any:
        data = self.document.data
        for step in path:
            inside = data if isinstance(data, dict) else dict(enumerate(data)) if isinstance(data, list) else {}
            data = inside.get(step)
        return data

    def text(self, *path: str | int) -> str | None:
        found = self.at(*path)
        return found.text if isinstance(found, Scalar) else None

    def place(self, *path: str | int) -> Place:
        return self.document.value_place(path)

    def number(self, *path: str | int, default: int) -> int:
        text = self.text(*path)
        if text is None:
            return default
        if not re.fullmatch("[0-9]{1,9}", text):
            raise fail(self.place(*path), f"{clipped(text)!r} is no number", "write, for example, 2")
        return int(text)

    def found(self) -> Found:
        specs = self.at("spec", "tfReplicaSpecs")
        if not isinstance(specs, dict) or not specs:
            at = self.place("spec") if isinstance(self.document.data, dict) else Place(self.name)
            hint = "expected the API kubeflow.org/v1, with PS, Chief, Worker or Evaluator there"
            raise fail(at, "this TFJob has no spec.tfReplicaSpecs", hint)
        jobs, machines, commands = [], [], {}
        for role in specs:
            path: KeyPath = ("spec", "tfReplicaSpecs", role)
            job = _JOBS.get(role.lower())
            if job is None:
                raise fail(self.document.key_place(path), f"{clipped(role)!r} is no role", f"roles: {', '.join(_JOBS)}")
            count = self.number(*path, "replicas", default=1)
            check_count(count, self.place(*path))
            if not count:
                self.notes.append(Note(f"{role}: it has no replicas", self.place(*path)))
                continue
            names = tuple(f"{job}-{index}" for index in range(count))
            place = self.document.key_place(path)
            gpus, commands[job], own = self._container(path)
            machines += [Machine(name, place, gpus=gpus) for name in names]
            jobs.append(FoundJob(job, names, place, settings=own))
            self._restarts(path)
        if not jobs:
            raise fail(self.place("spec"), "no role of this TFJob has replicas", "write, for example, replicas: 2")
        self.trainer["dialect"] = "tf_config", jobs[0].place  # flags are no part of a TFJob
        self._policies()
        order = ("ps", "chief", "master", "worker", "evaluator")
        jobs.sort(key=lambda job: order.index(job.name))
        main = commands.get("worker") or next(filter(None, commands.values()), None)
        if self.secrets:
            first = next(iter(self.secrets.values()))
            self.trainer["secrets"] = words([*self.secrets]), first
        hosts = Note("hosts: a TFJob names no machines; put a name or address for each, or ssh: as in hosts.NAME.ssh")
        jobs = [_with_command(job, commands.get(job.name), main) for job in jobs]
        return Found(
            "a TFJob",
            tuple(machines),
            tuple(jobs),
            name=self.text("metadata", "name") or self.text("metadata", "generateName"),
            settings=self.settings,
            trainer=self.trainer,
            command=tuple(main[0]) if main else (),
            command_place=main[1] if main else None,
            to_fill=(hosts, *self.mounts),
            left_out=tuple(self.notes),
        )

    def _container(self, path: KeyPath) -> tuple[int, Any, dict[str, tuple[str, Place]]]:
        """GPUs, command with its place, and settings of the job."""
        where = (*path, "template", "spec", "containers")
        listed = self.at(*where) if isinstance(self.at(*where), list) else []
        if not listed:
            raise fail(self.place(*path), "this role has no container", "expected template.spec.containers")
        named = [index for index in range(len(listed)) if self.text(*where, index, "name") == "tensorflow"]
        own = (*where, named[0] if named else 0)
        for index in range(len(listed)):
            if index != own[-1]:
                self.notes.append(Note("a second container", self.place(*where, index)))
        image = self.text(*own, "image")
        if image:
            container = "{container: " + scalar(image) + "}"
            if self.trainer.setdefault("environment", (container, self.place(*own, "image")))[0] != container:
                self.notes.append(Note(f"the image {image}: all jobs have one environment", self.place(*own, "image")))
        for key in ("workingDir", "envFrom"):
            if self.at(*own, key) is not None:
                why = "; trainers start in the directory of the code" if key == "workingDir" else ""
                self.notes.append(Note(f"{key}{why}", self.place(*own, key)))
        for key in ("volumes", "nodeSelector", "tolerations", "affinity", "initContainers", "imagePullSecrets"):
            if self.at(*path, "template", "spec", key) is not None:
                at = self.place(*path, "template", "spec", key)
                text = f"{key} of Kubernetes" + (
                    "; dirs.data and dirs.output name directories" if key == "volumes" else ""
                )
                (self.mounts if key == "volumes" else self.notes).append(Note(text, at))
        resources = self.at(*own, "resources", "limits")
        for key in resources if isinstance(resources, dict) else ():
            if not _GPU.search(key):
                self.notes.append(
                    Note(f"resources.limits.{clipped(key)}", self.place(*own, "resources", "limits", key))
                )
        gpus = next(
            (self.number(*own, "resources", "limits", key, default=0) for key in resources or () if _GPU.search(key)), 0
        )
        variables = dict(self._variables((*own, "env")))
        settings = {}
        if variables:
            pairs = ", ".join(f"{name}: {scalar(value)}" for name, (value, _) in variables.items())
            settings["env"] = "{" + pairs + "}", next(iter(variables.values()))[1]
        program, args = self._words((*own, "command")), self._words((*own, "args"))
        known = {name: value for name, (value, _) in variables.items()}
        command = [self._filled(word, known, own) for word in [*program, *args]]
        return gpus, (command, self.place(*own, "command" if program else "args")) if command else None, settings

    def _words(self, path: KeyPath) -> list[str]:
        listed = self.at(*path)
        found = [one.text for one in listed if isinstance(one, Scalar)] if isinstance(listed, list) else []
        shown, is_secret = [], False
        for word in found:
            hidden = is_secret or hide_text(word) != word
            if hidden:
                self.notes.append(
                    Note("a secret in the command is not copied; pass it by trainer.secrets", self.place(*path))
                )
            shown.append("" if hidden else word)
            is_secret = hides_next(word)
        return [] if "" in shown and "" not in found else shown

    def _filled(self, word: str, known: Mapping[str, str], path: KeyPath) -> str:
        """The word with the variables that Kubernetes fills in."""

        def value(match: re.Match[str]) -> str:
            if match[1] is None:
                return "$"
            if match[1] not in known:
                note = Note(f"{match[0]} in the command: Kubernetes fills it in, dtctl does not", self.place(*path))
                self.mounts += [] if note in self.mounts else [note]
            return known.get(match[1], match[0])

        return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value, word)

    def _variables(self, path: KeyPath) -> Iterator[tuple[str, tuple[str, Place]]]:
        listed = self.at(*path)
        for index in range(len(listed)) if isinstance(listed, list) else ():
            name, value = self.text(*path, index, "name"), self.text(*path, index, "value")
            if not name or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name == "TF_CONFIG":
                continue
            at = self.place(*path, index)
            if self.at(*path, index, "valueFrom", "secretKeyRef") is not None or (
                value is not None and (is_secret_name(name) or hide_text(value) != value)
            ):
                self.secrets.setdefault(name, at)
                self.notes.append(Note(f"{name} has a secret, which is not copied; trainer.secrets names it", at))
            elif value is None or "$(" in value:
                self.notes.append(Note(f"the variable {name}: its value is known in a pod alone", at))
            else:
                yield name, (value, at)

    def _restarts(self, path: KeyPath) -> None:
        policy = self.text(*path, "restartPolicy")
        at = self.place(*path, "restartPolicy")
        if policy == "Never" and "recovery" not in self.settings:
            self.settings["recovery"] = "{mode: never}", at
        elif policy == "ExitCode":
            self.notes.append(Note("restartPolicy ExitCode: recovery.retry and recovery.permanent name exit codes", at))

    def _policies(self) -> None:
        spec: KeyPath = ("spec",)
        for where in (("spec", "runPolicy"), spec):
            for key, own in (("activeDeadlineSeconds", "active_deadline"), ("ttlSecondsAfterFinished", "ttl")):
                if self.at(*where, key) is not None and own not in self.settings:
                    seconds = self.number(*where, key, default=1)
                    if seconds:
                        self.settings[own] = f"{seconds}s", self.place(*where, key)
            for key in ("backoffLimit", "cleanPodPolicy", "schedulingPolicy"):
                if self.at(*where, key) is not None:
                    hint = "; recovery.max_restarts is the like" if key == "backoffLimit" else ""
                    self.notes.append(Note(f"{key}{hint}", self.place(*where, key)))
        if self.text("spec", "successPolicy") == "AllWorkers":
            self.settings["success"] = "all-workers", self.place("spec", "successPolicy")


def _with_command(job: FoundJob, own: Any, main: Any) -> FoundJob:
    """The job with its command, where that is another than the trainer's."""
    if own is None or main is None or own[0] == main[0]:
        return job
    settings: Mapping[str, tuple[str, Place]] = {**job.settings, "command": (words(own[0]), own[1])}
    return FoundJob(job.name, job.hosts, job.place, job.port, settings)
