"""Tells of each checkpoint named on a line of stdin whether TensorFlow can read all of it: `ok`, or its error."""

from __future__ import annotations

import sys

import tensorflow as tf

for line in sys.stdin:
    try:
        reader = tf.train.load_checkpoint(line.rstrip("\n"))
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except Exception as error:
        print(type(error).__name__, str(error).split("\n")[0][:200], flush=True)
    else:
        print("ok", flush=True)
