"""Commands that are typed on a machine without Slurm: dtctl on the login node carries them out.

The code goes there as to any host (`push`). The words, the cluster file and the values of secrets go in a frame of the
same conversation, so that nothing of them is on a command line of SSH.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing

from dtctl.agent.records.answers import Output
from dtctl.agent.rooms.slurm.records import CODE, LoginCommandResult
from dtctl.bundle import Bundle
from dtctl.config.cluster import Cluster
from dtctl.config.load import read_file
from dtctl.errors import UsageError
from dtctl.model import Host
from dtctl.operations import sending
from dtctl.operations.client import Report, about, controller_name, final, frames_of, request
from dtctl.operations.client.plausible import wrong
from dtctl.operations.engines import OnOutput
from dtctl.operations.local import find_secrets
from dtctl.operations.run_record import RunRecord
from dtctl.operations.up.readying import sent_bundle
from dtctl.transport.seam import Session, Transport


def carry_out(
    cluster: Cluster,
    login: Host,
    words: Sequence[str],
    bundle: Bundle | None,
    transport: Transport,
    on_output: OnOutput,
    report: Report,
    *,
    removes: bool = False,
) -> int:
    """The exit code of the command. `bundle`: the code of a run that it submits; None for every other command.
    `removes`: the project there goes once the command has succeeded.
    """
    record = _record(cluster, login)
    variables = {"COLUMNS": str(shutil.get_terminal_size().columns)}

    def errors_alone(stream: int, data: bytes) -> None:
        if stream == 2:
            on_output(stream, data)

    fields: dict[str, object] = {
        "project": project_of(cluster),
        "program": cluster.slurm.dtctl,
        "words": list(words),
        "variables": variables,
        "removes": removes,
    }
    with closing(transport.open(login)) as session:
        if bundle is not None:
            with sending.sender(bundle, record) as sender:
                sent_bundle(record, session, sender, report)
            changes = {"content": _content(cluster), "bundle": bundle.id}
            allow = {**fields, **changes, "words": ["allow", "--yes", "--output=json"]}
            # The user has allowed here what the file sends; of the login node's files it may send what it names.
            if code := _ask(record, session, allow, errors_alone):
                return code
            fields |= {"variables": {**variables, **values_of(cluster)}, "words": [*words, *overrides(cluster)]}
        return _ask(record, session, fields, on_output)


def overrides(cluster: Cluster) -> list[str]:
    """What the file says of this machine, as it is on the login node."""
    if cluster.trainer.wheels is not None:
        raise UsageError(
            "trainer.environment.wheels is not sent to a login node",
            hint="put the wheels there, and type dtctl up on it",
        )
    own = [f"trainer.code={CODE}"]
    if cluster.trainer.env_file is not None:
        own.append("trainer.env_file=")  # its values are sent
    return [word for override in own for word in ("--set", override)]


def project_of(cluster: Cluster) -> str:
    """The name of the project's directory on the login node: the same for each command about this file."""
    where = f"{controller_name()}:{os.path.realpath(cluster.file)}"
    return f"{cluster.name}-{hashlib.sha256(where.encode()).hexdigest()[:8]}"


def _record(cluster: Cluster, login: Host) -> RunRecord:
    """The login node alone, as the host of a cluster without a run."""
    return RunRecord(
        cluster=cluster.name,
        run=None,
        file=cluster.file,
        hosts={login.name: login},
        roster={},
        lead=cluster.lead,
        success="lead",
    )


def _content(cluster: Cluster) -> str:
    return read_file(cluster.file).decode("utf-8", "surrogateescape")


def values_of(cluster: Cluster) -> Mapping[str, str]:
    """The values of secrets and of variables of hooks."""
    names = [name for hook in cluster.hooks.values() for name in hook.variables]
    return {**{name: os.environ[name] for name in names if name in os.environ}, **find_secrets(cluster, os.environ)}


def _ask(record: RunRecord, session: Session, fields: Mapping[str, object], on_output: OnOutput) -> int:
    session.send({**request(record, session.host, "login_command"), **fields})
    for message in frames_of(session, "output", most_bytes=None):
        if message.type == "output":
            with about(session.host.name, "sent an invalid `output`"):
                on_output(_stream(message.of(Output)), message.payload)
    done = final(record, session, "login_command", message, LoginCommandResult)
    return 128 + done["signal"] if done["signal"] else done["exit_code"] or 0


def _stream(output: Output) -> int:
    if output["stream"] not in (1, 2):
        raise wrong("stream", "1 or 2", output["stream"])
    return output["stream"]
