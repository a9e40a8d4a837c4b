"""What `import dtctl` offers, by the names in its `__all__`: the operations of the command line, without its screen."""

from dtctl.api.cluster import Cluster as Cluster
from dtctl.api.cluster import DataPlace as DataPlace
from dtctl.api.cluster import Finding as Finding
from dtctl.api.cluster import PlannedTask as PlannedTask
from dtctl.api.cluster import load as load
from dtctl.api.comparing import ComparedRun as ComparedRun
from dtctl.api.comparing import Comparison as Comparison
from dtctl.api.comparing import KnownRun as KnownRun
from dtctl.api.comparing import compare as compare
from dtctl.api.comparing import runs as runs
from dtctl.api.run import Run as Run
from dtctl.api.run import attach as attach
from dtctl.api.starting import replace as replace
from dtctl.api.starting import up as up
from dtctl.api.values import Checkpoint as Checkpoint
from dtctl.api.values import Command as Command
from dtctl.api.values import Event as Event
from dtctl.api.values import LogLine as LogLine
from dtctl.api.values import Status as Status
from dtctl.api.values import Task as Task
from dtctl.model import TaskState as TaskState
from dtctl.operations.client import Progress as Progress
from dtctl.operations.snapshot import Outcome as Outcome
from dtctl.rooms.metrics.operation import Point as Point
from dtctl.rooms.metrics.operation import Series as Series
from dtctl.rooms.pages.comparing import Metric as Metric
