"""The smallest trainer: a straight line through noisy points, by stochastic gradient descent.

It does what dtctl expects of every trainer: it prints its steps, saves what it has learnt, begins where it has
stopped, and on SIGTERM saves and ends.
"""

import argparse
import json
import os
import random
import time

from graceful import Stop

SLOPE, OFFSET = 3.0, -1.0  # of the line that is to be found


def parse_arguments():
    parser = argparse.ArgumentParser(description="Find a straight line.", allow_abbrev=False)
    parser.add_argument("--train_steps", type=int, default=300)
    parser.add_argument("--learning_rate", type=float, default=0.05)
    parser.add_argument("--output_dir", default="output", help="for what has been learnt")
    return parser.parse_args()


def load(path):
    """What an earlier attempt has learnt, or the beginning."""
    if not os.path.exists(path):
        return {"step": 0, "slope": 0.0, "offset": 0.0}
    with open(path) as file:
        return json.load(file)


def save(path, model):
    """Replaces the file at once: a process that is killed meanwhile leaves the old file."""
    with open(path + ".new", "w") as file:
        json.dump(model, file)
    os.replace(path + ".new", path)


def main():
    flags = parse_arguments()
    os.makedirs(flags.output_dir, exist_ok=True)
    path = os.path.join(flags.output_dir, "model.json")
    model = load(path)
    print(f"begins at step {model['step']}", flush=True)
    stop = Stop()
    for step in stop.between(range(model["step"] + 1, flags.train_steps + 1)):
        x = random.uniform(-1, 1)
        y = SLOPE * x + OFFSET + random.gauss(0, 0.1)
        error = model["slope"] * x + model["offset"] - y
        model["slope"] -= flags.learning_rate * error * x
        model["offset"] -= flags.learning_rate * error
        model["step"] = step
        if step % 50 == 0:
            print(f"step {step}  error {abs(error):.3f}", flush=True)
            save(path, model)
        time.sleep(0.01)  # or it would end too soon to be watched
    save(path, model)
    stop.exit_if_due()
    print(f"y = {model['slope']:.2f} x {model['offset']:+.2f}", flush=True)


if __name__ == "__main__":
    main()
