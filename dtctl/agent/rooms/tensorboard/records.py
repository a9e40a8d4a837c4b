"""Files of trainers for TensorBoard: scalars and event files; and the connections of a browser."""

from ...records.kinds import AtMost, Default, Dict, List, OneOf, Optional, Pattern, Record, Within
from ...records.requests import Request
from ...records.values import Count, Inode, Line, Name, Path, Tail
from ..metrics.records import FolderAt

MOST_FOLDERS = 1000
MOST_CHANNELS = 64
WINDOW_BYTES = 256 * 1024
"""The most bytes of a connection in one direction that the receiver has not confirmed yet."""
PIECE_BYTES = 64 * 1024
ALIVE_S = 10.0
"""The interval of a controller's messages that it is alive."""
SILENCE_S = 60.0
"""If the controller sends nothing for this long, TensorBoard is ended."""

FileName = Pattern[str, 255, r"[^/\0]*tfevents[^/\0]*", "the name of an event file"]
Channel = Within[int, 0, 2**31]
"""One connection of the browser's; numbers are not used again."""

PROBE = "import sys; from importlib.util import find_spec; sys.exit(3 if find_spec('tensorboard') is None else 0)"
"""A program that exits with 3 if TensorBoard is missing."""

LIFELINE = """\
import array, os, runpy, shutil, socket, socketserver, sys, threading
place = sys.argv.pop(1)
os.environ["TMPDIR"] = os.path.join(place, "tmp")
os.makedirs(os.environ["TMPDIR"], 0o700, exist_ok=True)
os.environ.pop("TENSORBOARD_DATA_SERVER_BINARY", None)
sys.modules["tensorboard_data_server"] = None
line = socket.socket(fileno=0)
servers = []
def serve_the_line_alone(server):
    server.socket.close()
    server.socket, server.never_ready = socket.socketpair()
    servers.append(server)
    line.send(b".")
def hand_on():
    try:
        while True:
            data, ancillary, _, _ = line.recvmsg(1, socket.CMSG_SPACE(4))
            if not data:
                break
            for _, _, sent in ancillary:
                connection = socket.socket(fileno=array.array("i", sent)[0])
                servers[0].process_request(connection, ("127.0.0.1", 0))
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os._exit(0)
socketserver.TCPServer.server_activate = serve_the_line_alone
threading.Thread(target=hand_on, daemon=True).start()
sys.argv[0] = "tensorboard"
runpy.run_module("tensorboard.main", run_name="__main__", alter_sys=True)
"""
"""Runs TensorBoard with `place`, its first argument, for its temporary files, until its standard input ends, so that it
ends when its parent is killed; then removes `place`.

It listens on no port: other users of the host could connect to one, and a free one may be in use when it is printed.
Its standard input is a socket: a byte on it reports that TensorBoard is ready, and connections arrive over it, one with
each byte. This works for any server based on `socketserver`, as Werkzeug's is. Its data server, a program that it would
start on a port of its own, does not start.
"""


class FileHad(Record):
    """The part of an event file that the controller has."""

    dir: Path
    name: Path
    file: FileName
    inode: Inode
    size: Count


class EventFilesRequest(Request):
    """Requests the event files themselves, and their new contents, until the conversation ends."""

    without: Default[AtMost[List[FolderAt], MOST_FOLDERS], []]
    """Directories that another host sends."""
    have: Default[AtMost[List[FileHad], 10_000], []]


class ChannelWord(Record):
    """`open`: the browser has connected. `piece`: the payload holds bytes of a connection, `closed`: it has ended; both
    in both directions.
    """

    channel: Channel


class TakenWord(ChannelWord):
    """`taken`: `size` bytes of a connection have reached their receiver; in both directions."""

    size: Count


class EventDirsResult(Record):
    """The directories with event files, and the Python with TensorBoard."""

    run: Name
    dirs: AtMost[List[Path], 100]
    """The directories that were searched."""
    folders: AtMost[List[FolderAt], MOST_FOLDERS]
    sizes: AtMost[Dict[AtMost[str, 8], Count], 8]
    """`files` and `bytes` of all folders together."""
    tensorboard: Optional[Line]
    """The Python that has TensorBoard."""
    tried: AtMost[List[Line], 20]
    """The Pythons that lack TensorBoard."""


class TensorboardReady(Record):
    """The frame `tensorboard_ready`: TensorBoard on the host takes connections; sent once."""

    dirs: AtMost[List[Path], 100]
    """The directories that it shows."""
    python: Line


class TensorboardResult(Record):
    """Why it has ended: it was `asked` to, the controller was `silent`, or it has `ended` by itself."""

    run: Name
    end: OneOf["asked", "silent", "ended"]
    said: Default[Tail, ""]
    """The end of what it printed."""


class EventFile(FolderAt):
    """The frame `event_file`: its payload holds bytes of a file from `offset` on."""

    file: FileName
    inode: Inode
    offset: Count
    """The offset of the data in the file; 0 replaces the file."""


class CaughtUp(Record):
    """The frame `caught_up`: all existing contents were sent; sent once."""

    files: Count
