"""Conversations with agents in pods: `kubectl exec`, with the same program and the same bytes as over SSH."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from dtctl.errors import DtctlError, TransportError
from dtctl.model import OtherTransport
from dtctl.transport.local import Child, ChildStream
from dtctl.transport.payload import LOADER
from dtctl.transport.stream import converse

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.seam import Session, TransportOptions

NAME = "kubectl"
"""The name of the transport, of the room and of the program."""
CONTAINER = "trainer"


def place(job: str, namespace: str | None) -> str:
    """The `target` of a host: the Job of its pod, in a namespace; None: the one that `kubectl` uses by itself."""
    return f"{namespace}/{job}" if namespace else job


def command(host: Host) -> list[str]:
    """What runs the agent in the pod of a host; which cluster that is, kubectl's own configuration says."""
    assert isinstance(host.reach, OtherTransport)
    namespace, _, job = host.reach.target.rpartition("/")
    where = [f"--namespace={namespace}"] if namespace else []
    return [NAME, "exec", *where, "--stdin", f"--container={CONTAINER}", f"job/{job}", "--", *shlex.split(LOADER)]


class KubectlTransport:
    def __init__(self, options: TransportOptions) -> None:
        self._waiting = options.waiting

    def open(self, host: Host) -> Session:
        argv = command(host)
        try:
            child = Child(argv)
        except OSError as error:
            raise TransportError(
                f"cannot reach {host.name}: kubectl: {error.strerror}",
                hint="install kubectl, and have its configuration name the cluster of the run",
            ) from error
        session = converse(host, ChildStream(child), self._waiting)
        try:
            session.greeted()
        except DtctlError as error:
            session.close()
            if not isinstance(error, TransportError):
                raise
            raise _unreached(host, argv, error) from error
        except BaseException:
            session.close()
            raise
        return session


def _unreached(host: Host, argv: list[str], error: TransportError) -> TransportError:
    where = shlex.join(word for word in argv[2:] if word.startswith(("--namespace", "job/")))
    return TransportError(
        f"no agent answers in the pod of {host.name}",
        detail="\n".join(filter(None, [error.summary, error.detail])),
        hint=f"kubectl describe {where}    shows the pod's job; kubectl logs {where}    what its command printed",
    )
