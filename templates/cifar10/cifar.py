"""CIFAR-10 as its authors give it out, in both formats: https://www.cs.toronto.edu/~kriz/cifar.html"""

import os
import pickle

import numpy as np

BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
TRAINING = [f"data_batch_{number}" for number in range(1, 6)]
TEST = ["test_batch"]
NOT_REAL = "STAND-IN.txt"
"""A file in the directory of data that only have the format."""


class NoData(Exception):
    """Says which files were looked for."""


def find(data_dir):
    """The directory with all files of one format: the binary ones first, for a pickle can run code."""
    for directory, ending in ((BINARY, ".bin"), (PYTHON, "")):
        path = os.path.join(data_dir, directory)
        if all(os.path.isfile(os.path.join(path, name + ending)) for name in TRAINING + TEST):
            return path
    raise NoData(
        f"no CIFAR-10 in {data_dir}: it needs {BINARY}/data_batch_1.bin to data_batch_5.bin and test_batch.bin,"
        f" or {PYTHON}/data_batch_1 to data_batch_5 and test_batch, from https://www.cs.toronto.edu/~kriz/cifar.html"
    )


def load(directory, names, part, parts):
    """Every `parts`-th record, beginning with number `part`: images (N, 32, 32, 3) of bytes, and labels (N)."""
    read = _read_binary if os.path.basename(directory) == BINARY else _read_python
    batches = [read(os.path.join(directory, name), slice(part, None, parts)) for name in names]
    pixels, labels = (np.concatenate(column) for column in zip(*batches))
    # In a record the red values of all pixels come first, row by row, then the green and the blue ones.
    return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels.astype(np.int64)


def _read_binary(path, own):
    """Records of a byte for the label and 3072 for the pixels. Only the own ones are read."""
    records = np.memmap(path + ".bin", dtype=np.uint8, mode="r").reshape(-1, 1 + 3072)[own]
    return records[:, 1:], records[:, 0]


def _read_python(path, own):
    with open(path, "rb") as file:
        batch = pickle.load(file, encoding="bytes")
    return batch[b"data"][own], np.array(batch[b"labels"])[own]
