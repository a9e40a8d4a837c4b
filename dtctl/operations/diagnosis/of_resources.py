"""What programs say of checkpoints, numbers, memory, disks and rights: rows of table.py."""

from __future__ import annotations

from dtctl.operations.diagnosis import joins
from dtctl.operations.diagnosis.signature import Level, Signature, in_log

RESOURCES = (
    Signature(
        "checkpoint_of_another_model",
        Level.ENDS,
        "NotFoundError: Key beta1_power not found in checkpoint",
        "the newest checkpoint of the run",
        "the checkpoint[ {checkpoint}] is of another model: {said}",
        (
            "dtctl checkpoints    shows what is there",
            "another directory (dirs.output, checkpoint.dir) or the model that it was saved by; then: dtctl up",
        ),
        in_log(
            r"(?P<said>Key \S+ not found in checkpoint|Tensor name \S+ not found in checkpoint.*|"
            r"Assign requires shapes of both tensors to match.*|size mismatch for .*|Missing key\(s\) in state_dict.*|"
            r"Unexpected key\(s\) in state_dict.*|Shape of variable .* doesn't match.*|"
            r"Received incompatible tensor with shape.*|Tensor's shape .* is not compatible with supplied.*)"
        ),
        joins.checkpoint,
    ),
    Signature(
        "checkpoint_damaged",
        Level.ENDS,
        "DataLossError: Checksum does not match: stored 3 vs. calculated on the restored bytes 4",
        "the newest checkpoint of the run",
        "a file is damaged, the checkpoint as a rule[ (the newest complete one is {checkpoint})]: {said}",
        (
            "dtctl checkpoints    tells which are complete",
            "move the damaged one away, or recovery.allow_scratch: true to start over; then: dtctl up",
        ),
        in_log(
            r"(?P<said>(?i:data.?loss)(?:Error)?:? .*|Checksum does not match.*|Unable to open table file.*|"
            r"corrupted record .*|truncated record .*|PytorchStreamReader failed.*)"
        ),
        joins.checkpoint,
    ),
    Signature(
        "checkpoint_missing",
        Level.ENDS,
        "Unsuccessful TensorSliceReader constructor: Failed to find any matching files for /data/model.ckpt-100",
        "the newest checkpoint of the run",
        "a checkpoint is not where the trainer looks for it[: {said}][; the newest complete one is {checkpoint} on "
        "{holder_host}]",
        (
            "dtctl checkpoints    shows which host has what",
            "a directory that all hosts share (dirs.output), or the same files on each",
        ),
        in_log(r"(?:TensorSliceReader.*?)?Failed to find any matching files for (?P<said>\S+)|TensorSliceReader"),
        joins.checkpoint,
    ),
    Signature(
        "diverged",
        Level.ENDS,
        "NanLossDuringTrainingError: NaN loss during training.",
        "",
        "the loss is no number any more: training has diverged",
        (
            "dtctl metrics --plot loss    shows since when",
            "a smaller learning rate, or gradients that are clipped; restore a checkpoint from before",
        ),
        in_log(
            r"Model diverged with loss = NaN|NanLossDuringTrainingError|NaN loss during training|"
            r"Invalid loss, terminating training|Tensor had (?:NaN|Inf)|"
            r"(?i:loss (?:is|became|=) (?:nan|infinite|not finite))"
        ),
    ),
    Signature(
        "gpu_memory",
        Level.ENDS,
        "ResourceExhaustedError: OOM when allocating tensor with shape[8192,8192] ... by allocator GPU_0_bfc",
        "the GPUs of the host",
        "the memory of a GPU on {hosts} is too small, or shared[: GPU {gpu} has {used_bytes} of {memory_bytes} in use]",
        (
            "dtctl exec {at} -- nvidia-smi    shows who uses it",
            "a smaller batch in trainer.args; fewer tasks a GPU (jobs.NAME.gpus_per_task)",
        ),
        in_log(
            r"CUDA_ERROR_OUT_OF_MEMORY|CUDA out of memory|OutOfMemoryError: CUDA|CUBLAS_STATUS_ALLOC_FAILED|"
            r"(?:OOM when allocating|ran out of memory|failed to allocate).*(?:GPU|gpu|cuda)"
        ),
        joins.gpu,
    ),
    Signature(
        "cuda_unusable",
        Level.ENDS,
        "CUDA driver version is insufficient for CUDA runtime version",
        "the driver that nvidia-smi tells",
        "CUDA on {hosts} does not work for this program[; the driver is {driver}]: {said}",
        (
            "dtctl exec {at} -- nvidia-smi    shows driver and CUDA",
            "dtctl exec {at} -- {python} -m pip install 'tensorflow[and-cuda]'    brings the libraries along",
        ),
        in_log(
            r"(?P<said>CUDA driver version is insufficient.*|(?:Could not load dynamic library|error while loading "
            r"shared libraries:|cannot open shared object file).*(?:cuda|cudnn|cublas|nccl|nvinfer).*|"
            r"\S*lib(?:cuda|cudart|cudnn|cublas|nccl)\S* cannot open shared object.*|Found no NVIDIA driver.*|"
            r"no kernel image is available.*|CUDNN_STATUS_NOT_INITIALIZED.*|DNN library is not found.*|"
            r"CUDA_ERROR_(?!OUT_OF_MEMORY)\w+.*|Torch not compiled with CUDA.*|CUDA error: (?!out of memory).*)"
        ),
        lambda facts, task, fields: {**joins.gpu(facts, task, fields), "python": facts.python(task)},
    ),
    Signature(
        "disk_full",
        Level.ENDS,
        "OSError: [Errno 28] No space left on device",
        "the file systems that the run writes to",
        "a disk of {hosts} is full[: {free_bytes} of {size_bytes} left at {where}]",
        (
            "dtctl gc    removes old runs and old code",
            "dtctl exec {at} -- df -h    shows the rest",
            "dtctl up    goes on from the newest checkpoint, as soon as there is room",
        ),
        in_log(r"No space left on device|ENOSPC|Errno 28\b|Disk quota exceeded|EDQUOT"),
        joins.disk,
    ),
    Signature(
        "host_memory",
        Level.ENDS,
        "MemoryError; std::bad_alloc; Cannot allocate memory",
        "the memory of the host",
        "{hosts} has too little memory for it[: {available_bytes} of {memory_bytes} are free now]",
        (
            "dtctl exec {at} -- free -h",
            "a smaller batch in trainer.args, or fewer tasks on that host (jobs.NAME.hosts)",
        ),
        in_log(
            r"\bMemoryError\b|std::bad_alloc|Cannot allocate memory|Unable to allocate .* for an array|"
            r"OOM when allocating|\bENOMEM\b|DefaultCPUAllocator: (?:not enough|can't allocate) memory|"
            r"(?i:out of memory)|RESOURCE_EXHAUSTED|ResourceExhausted"
        ),
        joins.memory,
    ),
    Signature(
        "permission_denied",
        Level.ENDS,
        "PermissionError: [Errno 13] Permission denied: '/data/out'",
        "",
        "the trainer may not do that[ with {path}] on {hosts}, as the user that dtctl logs in as",
        (
            "dtctl exec {at} -- ls -ld {path}",
            "change its owner there, or name another directory (dirs) in cluster.yaml",
        ),
        in_log(
            r"(?:Permission denied|PermissionError|EACCES|Read-only file system|PERMISSION_DENIED|PermissionDenied)"
            r"(?:.*?['\"\s;:](?P<path>/[^'\":;\s]+))?"
        ),
    ),
)
