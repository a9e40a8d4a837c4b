"""Real TensorFlow with parameter servers, where variables, waits and saves are as large as they are asked for.

Gradients are as large as the variables. What a GPU would compute is a sleep within the step.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from fake_gpu import Gpu  # type: ignore[import-not-found]  # beside it on the host

parser = argparse.ArgumentParser(description=__doc__)
add = parser.add_argument
add("--job_name", required=True)
add("--task_index", type=int, required=True)
add("--ps_hosts", required=True)
add("--worker_hosts", required=True)
add("--large", default="", help="KB of each large variable, with commas between them; a small one follows each")
add("--dormant_mb", type=int, default=0, help="a variable that is saved and hardly read")
add("--placement", default="round-robin", choices=["round-robin", "greedy", "partitioned"])
add("--gpu_s", type=float, default=0.0)
add("--slow", default="")
add("--times", type=float, default=1.0)
add("--sync", type=int, default=0)
add("--input_s", type=float, default=0.0)
add("--input_files", default="")
add("--save_secs", type=int, default=0)
add("--output_dir", default="output")
FLAGS = parser.parse_args()

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)
cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
ONE_THREAD = {"intra_op_parallelism_threads": 1, "inter_op_parallelism_threads": 4}


class LeastBytes:
    """Each variable goes to the ps that holds the fewest bytes so far."""

    def __init__(self, servers: int) -> None:
        self.held = [0] * servers

    def __call__(self, variable: tf.Operation) -> int:
        server = self.held.index(min(self.held))
        self.held[server] += 4 * (tf.TensorShape(variable.get_attr("shape")).num_elements() or 1)
        return server


def main() -> None:
    me = f"/job:{FLAGS.job_name}/task:{FLAGS.task_index}"
    config = tf.ConfigProto(device_filters=["/job:ps", me], **ONE_THREAD)
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index, config=config)
    if FLAGS.job_name == "ps":
        server.join()
    train(server, me, config)


def train(server: tf.train.Server, me: str, config: tf.ConfigProto) -> None:
    gpu, times = Gpu(), FLAGS.times if FLAGS.slow == f"worker:{FLAGS.task_index}" else 1.0
    servers = cluster.num_tasks("ps")
    placement = LeastBytes(servers) if FLAGS.placement == "greedy" else None
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me, ps_strategy=placement)):
        step = tf.train.get_or_create_global_step()
        parts = tf.fixed_size_partitioner(servers) if FLAGS.placement == "partitioned" else None
        zeros = tf.zeros_initializer()
        for number, size in enumerate(FLAGS.large.split(",")):
            tf.get_variable(f"weights_{number}", [int(size) * 4, 64], initializer=zeros, partitioner=parts)
            tf.get_variable(f"biases_{number}", [64], initializer=zeros)
        if FLAGS.dormant_mb:
            tf.get_variable("dormant", [FLAGS.dormant_mb * 4096, 64], initializer=zeros, trainable=False)
    with tf.device(me):
        read = [(tf.identity(one), one) for one in tf.trainable_variables()]

        def pause(*_: object) -> object:
            gpu.compute(FLAGS.gpu_s * times)
            return np.float32(0)

        with tf.control_dependencies([value for value, _ in read]):
            paused = tf.py_func(pause, [], tf.float32)
        gradients = [(value * 0.001 + paused, one) for value, one in read]
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=me)):
        optimizer = tf.train.GradientDescentOptimizer(0.01)
        hooks = []
        if FLAGS.sync:
            optimizer = tf.train.SyncReplicasOptimizer(optimizer, cluster.num_tasks("worker"))
        update = optimizer.apply_gradients(gradients, global_step=step)
        if FLAGS.sync:
            hooks.append(optimizer.make_session_run_hook(FLAGS.task_index == 0, num_tokens=0))
    with tf.device(me):
        saver = tf.train.Saver(save_relative_paths=True, max_to_keep=2)
    is_chief = FLAGS.task_index == 0
    # a step too much costs a second of this program's life: the chief's variables are waited for every second
    session = tf.train.MonitoredTrainingSession(
        server.target,
        is_chief,
        checkpoint_dir=FLAGS.output_dir if is_chief and FLAGS.save_secs else None,
        scaffold=tf.train.Scaffold(saver=saver),
        hooks=hooks,
        save_checkpoint_secs=FLAGS.save_secs or None,
        save_summaries_steps=None,
        save_summaries_secs=None,
        log_step_count_steps=None,
        max_wait_secs=300,
        config=config,
    )
    files = sorted(Path(FLAGS.input_files).expanduser().iterdir()) if FLAGS.input_files else []
    number = 0
    with session:
        while True:
            if FLAGS.input_s:
                time.sleep(FLAGS.input_s)
            if files:
                files[number % len(files)].read_bytes()
            _, now = session.run([update, step])
            number += 1
            gpu.report()
            print(f"step {now}", flush=True)


main()
