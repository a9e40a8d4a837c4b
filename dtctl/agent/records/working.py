"""What dtctl has put into the working directory of a cluster's trainers: work/CLUSTER/code.json."""

from .kinds import AtMost, Dict, Form, List, Optional, Record, Usual
from .words import BundleId, Name

MOST_PATHS = 1_000_000

Path = AtMost[str, 8192]


class Copy(Record):
    """A file of the code as it was when it had just been copied."""

    sha256: BundleId
    signature: AtMost[str, 100]
    """Size, times of modification and of change in ns, and inode: more digits than every reader of JSON can hold."""


class Code(Record):
    """code.json. A trainer may write to it, as to all that is its user's: what it claims is looked at again."""

    id: Form[str, 32, r"[0-9a-f]{32}", "32 hex digits"]
    """Of the directory, by which hosts that share it can be told from hosts that have one each."""
    run: Usual[Optional[Name], None]
    """That it was last laid out for."""
    bundle: Usual[Optional[BundleId], None]
    files: Usual[AtMost[Dict[Path, Copy], MOST_PATHS], {}]
    links: Usual[AtMost[Dict[Path, Path], MOST_PATHS], {}]
    """Those of the push, and one to each file that the setup has made."""
    dirs: Usual[AtMost[List[Path], MOST_PATHS], []]
