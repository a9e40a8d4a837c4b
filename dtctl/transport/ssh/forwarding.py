"""Gives the programs of a session on a host this machine's ssh-agent, over the session's connection.

paramiko's own handler raises in its threads when a session ends, which prints tracebacks over the user's output.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from paramiko.ssh_exception import SSHException

if TYPE_CHECKING:
    from paramiko.channel import Channel

_PIECE_BYTES = 1 << 14
_LOOK_S = 0.5


def agent_socket() -> str:
    """The path of the socket of this user's agent; empty without one."""
    return os.environ.get("SSH_AUTH_SOCK", "")


def forward_agent(channel: Channel) -> None:
    """Asks the host to offer the agent to what is run in this session; does nothing without an agent."""
    if agent_socket():
        channel.request_forward_agent(_connect)


def _connect(asking: Channel) -> None:
    """A program on the host has connected to the agent."""
    threading.Thread(target=_serve, args=(asking,), daemon=True, name="ssh-agent").start()


def _serve(asking: Channel) -> None:
    with closing(asking), socket.socket(socket.AF_UNIX) as agent, suppress(OSError, EOFError, SSHException):
        agent.connect(agent_socket())
        both: list[Any] = [agent, asking]
        while True:
            ready: list[Any] = select.select(both, [], [], _LOOK_S)[0]
            if agent in ready and not _pass_on(agent, asking):
                return
            if asking in ready and not _pass_on(asking, agent):
                return
            if asking.closed:
                return


def _pass_on(source: socket.socket | Channel, to: socket.socket | Channel) -> bool:
    """Passes on what has arrived; False at the end."""
    data = source.recv(_PIECE_BYTES)
    to.sendall(data)
    return bool(data)
