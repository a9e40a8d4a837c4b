"""Failures to reach a host as errors: what was tried, what came back, what to do next."""

from __future__ import annotations

import errno
import os
import shlex
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.dataclass import dataclass
from dtctl.errors import HostKeyError, TransportError
from dtctl.transport.stream import RemoteExit, text_of

if TYPE_CHECKING:
    from dtctl.transport.ssh.keyring import LoginRefused
    from dtctl.transport.ssh.known_hosts import HostKey, Pinned


@dataclass(frozen=True)
class Destination:
    """A host on the route, as errors name it."""

    name: str
    """The name in the inventory; of a gateway, the user's name for it."""
    address: str
    port: int
    trust: str
    """The argument for `dtctl trust`; if empty, it inspects all hosts and their gateways."""
    identity_file: str | None = None
    """The key from the cluster file or the command line, which `ssh` does not know by itself."""

    def __str__(self) -> str:
        where = f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"
        return where if self.name == self.address else f"{self.name} ({where})"

    def try_command(self, user: str) -> str:
        key = f"-i {shlex.quote(str(Path(self.identity_file).expanduser()))} " if self.identity_file else ""
        return f"ssh {key}-p {self.port} {user}@{self.address} true    should work first"


def cannot_connect(to: Destination, error: OSError, timeout_s: float) -> TransportError:
    """The error for a failed TCP connection."""
    if isinstance(error, socket.gaierror):
        return TransportError(
            f"cannot find {to.name}: the name {to.address!r} does not resolve",
            detail=error.strerror or "",
            hint=f"check `ssh:` of {to.name} in the cluster file, or HostName in ~/.ssh/config",
            shared_summary="the name does not resolve",
        )
    if isinstance(error, ConnectionRefusedError):
        return TransportError(
            f"{to} refuses connections",
            hint=f"does sshd run there, and is {to.port} its port? (`ssh: {{port: N}}`)",
            shared_summary="connections are refused",
        )
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return TransportError(
            f"{to} does not answer within {timeout_s:g} s",
            hint=_example(to) or "is it up, is the address right, and does no firewall stand between?",
            shared_summary=f"no answer within {timeout_s:g} s",
        )
    why = error.strerror or str(error)
    return TransportError(
        f"cannot reach {to}",
        detail=why,
        hint=_example(to) or "is the address right?",
        shared_summary=f"cannot be reached: {why}",
    )


def _example(to: Destination) -> str:
    """A hint for example addresses, which no machine has, as in the files that `dtctl init` writes (RFC 5737)."""
    if not to.address.startswith(("192.0.2.", "198.51.100.", "203.0.113.")):
        return ""
    return "that is an example's address: write your machines' into the cluster file, or train here: dtctl up --local"


def no_banner(to: Destination, tries: int) -> TransportError:
    return TransportError(
        f"{to} closes the connection before it greets",
        detail=f"tried {tries} times; an sshd with too many unfinished logins does so (MaxStartups)",
        hint="if nothing else logs in there, is this really the port of an SSH server?",
        shared_summary="the connection is closed before any greeting",
    )


def silent(to: Destination, timeout_s: float) -> TransportError:
    return TransportError(
        f"{to} accepts connections, but does not greet as SSH servers do within {timeout_s:g} s",
        hint="is this really the port of an SSH server?",
        shared_summary=f"no greeting of an SSH server within {timeout_s:g} s",
    )


def no_handshake(to: Destination, error: BaseException) -> TransportError:
    return TransportError(
        f"cannot agree with {to} on how to encrypt",
        detail=str(error) or type(error).__name__,
        shared_summary="no agreement on how to encrypt",
    )


def login_timed_out(to: Destination, timeout_s: float) -> TransportError:
    return TransportError(
        f"{to} does not complete the login within {timeout_s:g} s",
        hint="the host may be very busy; try again",
        shared_summary=f"the login is not complete within {timeout_s:g} s",
    )


def cannot_log_in(to: Destination, failure: LoginRefused) -> TransportError:
    """The error for a refused login.

    `shared` names no user, because hosts with the same reason may differ in theirs.
    """
    summary, shared, hint = (
        f"cannot log in to {to} as {failure.user}",
        "the login is refused",
        to.try_command(failure.user),
    )
    accepts = f"the host accepts {', '.join(failure.accepts)}" if failure.accepts else ""
    prompts = ["`ssh: {client: openssh}` asks for what is not a key"] if set(failure.accepts) - {"publickey"} else []
    offered = f"offered {', '.join(failure.offered)}" if failure.offered else "no key to offer"
    locked = [f"{path} needs a passphrase, and there is no terminal to ask for it" for path in failure.locked]
    if failure.more_than_a_key:
        wanted = " or ".join(failure.accepts)
        accepts = f"the key was accepted, but the host also wants {wanted}"
        shared = f"the key is accepted, but the login also needs {wanted}"
    elif failure.ended:
        accepts = f"the host ended the connection: {failure.ended}"
    detail = "\n".join(["; ".join(filter(None, [offered, accepts])), *prompts, *locked, *failure.unusable])
    if failure.locked:
        shared, hint = f"the login is refused, and {failure.locked[0]} is locked", f"ssh-add {failure.locked[0]}"
    elif failure.ended and len(failure.offered) > 1:
        shared = "the login is refused after several keys"
        hint = "name the one right key: `ssh: {identity_file: PATH}`, dtctl -i PATH, or IdentitiesOnly in ~/.ssh/config"
    elif not failure.offered:
        shared = "the login is refused without a key"
    return TransportError(summary, detail=detail, hint=hint, shared_summary=shared)


NO_FILE = (
    "ssh: {known_hosts: ~/.ssh/known_hosts}    in cluster.yaml names a file for them: UserKnownHostsFile in your "
    "ssh_config keeps no keys\ndtctl trust    then pins them"
)
"""What to do where there is no file for host keys, as with `UserKnownHostsFile /dev/null`."""


def unknown_key(
    to: Destination, key: HostKey, files: Sequence[os.PathLike[str]], *, can_pin: bool = True
) -> HostKeyError:
    """`can_pin`: whether there is a file for new keys."""
    return HostKeyError(
        f"the host key of {to} is not known",
        detail=f"it shows {key.type} {key.fingerprint}; looked in {', '.join(str(file) for file in files)}",
        hint="dtctl trust" if can_pin else NO_FILE,
        shared_summary="the host key is not known",
    )


def changed_key(to: Destination, name: str, key: HostKey, pinned: Pinned) -> HostKeyError:
    what = "has changed" if key.type == pinned.key.type else "is of another type than the one that is known"
    return HostKeyError(
        f"the host key of {to} {what}",
        detail=f"it shows   {key.type} {key.fingerprint}\n"
        f"pinned is  {pinned.key.type} {pinned.key.fingerprint} ({pinned})\n"
        "somebody may be listening in, or the host was reinstalled",
        hint=f"if you know why: ssh-keygen -f {pinned.file} -R '{name}'; then dtctl trust {to.trust}".rstrip(),
        shared_summary=f"the host key {what}: reinstalled, or somebody listens in",
    )


def revoked_key(to: Destination, key: HostKey, pinned: Pinned) -> HostKeyError:
    return HostKeyError(
        f"the host key of {to} is revoked",
        detail=f"{key.type} {key.fingerprint} is marked @revoked in {pinned}",
        shared_summary="the host key is revoked",
    )


def gateway_refuses(to: Destination, gateway: str, reason: str) -> TransportError:
    return TransportError(
        f"cannot reach {to} through {gateway}",
        detail=f"{gateway} answers: {reason}",
        hint=f"is {to.address}:{to.port} right as seen from {gateway}, and does its sshd allow forwarding?",
        shared_summary=f"cannot be reached through {gateway}",
    )


def through_gateway(to: Destination, error: TransportError) -> TransportError:
    """The error for an unusable gateway, of the same class."""
    return type(error)(
        f"cannot reach {to.name} through its gateway: {error.summary}",
        detail=error.detail,
        hint=error.hint,
        shared_summary=f"cannot be reached through the gateway: {error.summary}",
    )


def proxy_command_failed(to: Destination, command: str, ending: RemoteExit) -> TransportError:
    return TransportError(
        f"the ProxyCommand of {to.name} fails",
        detail="\n".join(filter(None, [f"{command}\n{ending}", text_of(ending.stderr)])),
        shared_summary="the ProxyCommand fails",
    )


UNASKED = (
    "`ssh` could ask nothing here, as there is no terminal: `ssh-add` loads a key that has a passphrase,\n"
    "and `dtctl exec -- true` on a terminal answers for the commands that follow"
)


def cannot_log_in_by_ssh(to: Destination, user: str, words: str, *, unasked: bool) -> TransportError:
    """The failure of the `ssh` program, whose output is shown, not parsed.

    `unasked`: it might have prompted on a terminal.
    """
    words = words.replace(
        f"{user}@{to.address}: ", ""
    )  # the summary has it, and hosts with the same answer are grouped
    return TransportError(
        f"ssh cannot log in to {to} as {user}",
        detail="\n".join(filter(None, [words, UNASKED if unasked else ""])),
        hint=to.try_command(user),
        shared_summary="ssh cannot log in",
    )


def shows_no_key(to: Destination, words: str) -> TransportError:
    return TransportError(f"ssh cannot get a host key of {to}", detail=words, shared_summary="ssh gets no host key")


def forwards_no_agent(to: Destination, target: str) -> TransportError:
    return TransportError(
        f"the file has forward_agent for {to}, and your SSH configuration does not allow it",
        detail="whoever administers the host can use the keys of your ssh-agent meanwhile, so both have to say it",
        hint=f"add to ~/.ssh/config: Host {target}, and below it: ForwardAgent yes; or remove forward_agent",
        shared_summary="your SSH configuration does not allow forward_agent",
    )


def no_session(to: Destination, reason: str) -> TransportError:
    return TransportError(
        f"{to} accepts the login, but opens no session",
        detail=reason,
        hint="MaxSessions or the account forbids it",
        shared_summary="the login works, but no session is opened",
    )
