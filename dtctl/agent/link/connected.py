"""One connection of an agent, as the coordinator's hub holds it."""

from __future__ import annotations

from .admission import PROOF_S
from .messages import FROM_AGENT
from .peer import Peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .stream import TlsStream
    from .tls import Identity


class Agent(Peer):
    """`name` is the host that its certificate names, `host` the same from its hello on until it is dismissed. Without
    a `host` it is dropped at `until`.
    """

    def __init__(self, stream: TlsStream, identity: Identity, now: float) -> None:
        super().__init__(stream, FROM_AGENT, now)
        self.identity = identity
        self.name = stream.host
        self.host: Optional[str] = None
        self.until = now + PROOF_S
        self.is_dismissed = False
        self.is_dropped = False
        self.is_written_to = False
        """Its socket is waited for until it takes more."""

    @property
    def due(self) -> float:
        return self.until if self.host is None else self.keepalive.due()
