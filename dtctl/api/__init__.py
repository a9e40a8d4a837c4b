"""What `import dtctl` offers: the operations of the command line, without its screen."""

from dtctl.api.cluster import Cluster, load
from dtctl.api.run import Run, attach
from dtctl.api.starting import up
from dtctl.api.values import Checkpoint, LogLine, Status, Task
from dtctl.model import TaskState
from dtctl.operations.client.conversation import Progress
from dtctl.operations.metrics import Point, Series
from dtctl.operations.snapshot import Outcome

__all__ = [
    "Checkpoint",
    "Cluster",
    "LogLine",
    "Outcome",
    "Point",
    "Progress",
    "Run",
    "Series",
    "Status",
    "Task",
    "TaskState",
    "attach",
    "load",
    "up",
]
