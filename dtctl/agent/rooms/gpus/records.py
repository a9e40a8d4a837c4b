"""The GPUs of a host, whether a run uses them or not."""

from ...records.kinds import Record
from ...records.vitals import Gpus


class GpusResult(Record):
    """The GPUs as the driver reports them now."""

    gpus: Gpus
