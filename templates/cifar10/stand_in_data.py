"""Images in the format of CIFAR-10, to try a trainer with: real handwritten digits, coloured, on noisy backgrounds.

python stand_in_data.py DIRECTORY [--format python]
"""

import argparse
import os
import pickle
import shutil
import tempfile

import numpy as np
from cifar import BINARY, NOT_REAL, PYTHON, TEST, TRAINING
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

BATCH = 1000  # images of a file, where the real ones have 10000
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def draw(digits, labels, count, random):
    """`count` images as (N, 3072) bytes, and their labels: digits three times as large, somewhere on 32 x 32 pixels."""
    chosen = random.permutation(np.arange(count) % len(digits))
    images = np.empty([count, 3, 32, 32])
    for image, digit in zip(images, digits[chosen]):
        ink = np.zeros([32, 32])
        top, left = random.integers(2, 7, size=2)
        ink[top : top + 24, left : left + 24] = np.kron(digit / 16.0, np.ones([3, 3]))
        dark, bright = random.uniform(0.0, 0.4, size=[3, 1, 1]), random.uniform(0.6, 1.0, size=[3, 1, 1])
        image[:] = dark + (bright - dark) * ink + random.normal(0.0, 0.05, size=[3, 32, 32])
    return (images.clip(0, 1) * 255).astype(np.uint8).reshape(count, 3072), labels[chosen]


def write_binary(path, pixels, labels):
    np.concatenate([labels[:, None].astype(np.uint8), pixels], axis=1).tofile(path + ".bin")


def write_python(path, pixels, labels):
    name = os.path.basename(path).encode()
    with open(path, "wb") as file:
        pickle.dump({b"batch_label": name, b"labels": labels.tolist(), b"data": pixels}, file, protocol=2)


def write(data_dir, file_format="binary"):
    """Writes all files at once; other processes may write the same ones at the same time."""
    directory, write_batch = (BINARY, write_binary) if file_format == "binary" else (PYTHON, write_python)
    random = np.random.default_rng(0)
    digits, labels = load_digits(return_X_y=True)
    seen, held_out, seen_labels, held_out_labels = train_test_split(
        digits.reshape(-1, 8, 8), labels, test_size=0.2, stratify=labels, random_state=0
    )
    os.makedirs(data_dir, exist_ok=True)
    new = tempfile.mkdtemp(prefix="stand-in-", dir=data_dir)
    try:
        pixels, labels = draw(seen, seen_labels, BATCH * len(TRAINING), random)
        for number, name in enumerate(TRAINING):
            own = slice(number * BATCH, (number + 1) * BATCH)
            write_batch(os.path.join(new, name), pixels[own], labels[own])
        write_batch(os.path.join(new, TEST[0]), *draw(held_out, held_out_labels, BATCH, random))
        if file_format == "binary":
            with open(os.path.join(new, "batches.meta.txt"), "w") as file:
                file.write("\n".join(NAMES) + "\n")
        else:
            with open(os.path.join(new, "batches.meta"), "wb") as file:
                pickle.dump({b"label_names": [name.encode() for name in NAMES], b"num_vis": 3072}, file, protocol=2)
        with open(os.path.join(new, NOT_REAL), "w") as file:
            file.write("Handwritten digits in the format of CIFAR-10, written by stand_in_data.py.\n")
        os.chmod(new, 0o755)
        os.rename(new, os.path.join(data_dir, directory))
    except OSError:
        if not os.path.isfile(os.path.join(data_dir, directory, NOT_REAL)):
            raise  # and otherwise another one was first
    finally:
        shutil.rmtree(new, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write digits in the format of CIFAR-10.", allow_abbrev=False)
    parser.add_argument("directory")
    parser.add_argument("--format", choices=["binary", "python"], default="binary")
    flags = parser.parse_args()
    write(flags.directory, flags.format)
