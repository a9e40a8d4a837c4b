"""Each worker finds the straight line through noisy points by itself; worker 0 saves it."""

import argparse
import json
import random
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--train_steps", type=int, default=200)
parser.add_argument("--learning_rate", type=float, default=0.05)
parser.add_argument("--output_dir", type=Path, default=Path("output"))
parser.add_argument("--task_index", type=int, default=0)
flags, _ = parser.parse_known_args()  # the addresses of the others are not needed

random.seed(flags.task_index)
slope = offset = 0.0
loss = 1.0
for step in range(1, flags.train_steps + 1):
    x = random.uniform(-1, 1)
    error = slope * x + offset - (3 * x - 1 + random.gauss(0, 0.1))
    slope -= flags.learning_rate * error * x
    offset -= flags.learning_rate * error
    loss = 0.95 * loss + 0.05 * error**2
    if step % 10 == 0:
        print(f"step {step} loss {loss:.4f}", flush=True)
    time.sleep(0.01)

if flags.task_index == 0:
    flags.output_dir.mkdir(parents=True, exist_ok=True)
    (flags.output_dir / "line.json").write_text(json.dumps({"slope": slope, "offset": offset}))
