"""A stand-in for a trainer whose bytes, waits and processor time are real, and chosen: no framework.

Each step of a worker: it gets a batch, fetches the variables of each ps, computes, and sends as many bytes of gradients
back. What a GPU would compute is a sleep in which the GPU of tests/hosts/nvml.c reports that it is busy.
"""

from __future__ import annotations

import argparse
import socket
import struct
import threading
import time
from pathlib import Path

from fake_gpu import Gpu  # type: ignore[import-not-found]  # beside it on the host

HEAD = struct.Struct("!cQ")
FETCH, SEND, MEET = b"f", b"s", b"m"
CHUNK = bytes(1 << 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--job_name", required=True)
    add("--task_index", type=int, required=True)
    for job in ("ps", "worker", "chief"):
        add(f"--{job}_hosts", default="")
    add("--shards", default="", help="bytes of the variables that each ps holds, with commas between them")
    add("--gpu_s", type=float, default=0.0, help="seconds that a GPU computes in each step")
    add("--spin_s", type=float, default=0.0, help="seconds of processor time in each step")
    add("--slow", default="", help="a task that computes --times as long")
    add("--times", type=float, default=1.0)
    add("--ps_spin_s", type=float, default=0.0, help="processor time that a ps spends on each gradient")
    add("--sync", type=int, default=0, help="the workers wait for each other at the end of each step")
    add("--input_s", type=float, default=0.0, help="seconds in which a batch is not there yet")
    add("--input_files", default="", help="a directory whose files are read one after the other, one in each step")
    add("--feed_bytes", type=int, default=0, help="the chief sends each worker its batch: so many bytes")
    add("--save_every_s", type=float, default=0.0)
    add(
        "--save_s", type=float, default=0.0, help="seconds in which worker:0 writes a checkpoint, and does nothing else"
    )
    add("--output_dir", default="")
    FLAGS = parser.parse_args()
    me = f"{FLAGS.job_name}:{FLAGS.task_index}"
    if FLAGS.job_name == "ps":
        serve(FLAGS)
    elif FLAGS.feed_bytes and FLAGS.job_name == "chief":
        feed(FLAGS)
    elif FLAGS.feed_bytes:
        compute_what_is_fed(FLAGS)
    else:
        train(FLAGS, me)


def addresses(text: str) -> list[tuple[str, int]]:
    found = [address.rpartition(":") for address in text.split(",") if address]
    return [(host, int(port)) for host, _, port in found]


def listen(FLAGS: argparse.Namespace) -> socket.socket:
    port = addresses(getattr(FLAGS, f"{FLAGS.job_name}_hosts"))[FLAGS.task_index][1]
    return socket.create_server(("", port), backlog=100)


def connected(address: tuple[str, int]) -> socket.socket:
    while True:
        try:
            made = socket.create_connection(address, timeout=5)
        except OSError:
            time.sleep(0.2)
        else:
            made.settimeout(None)
            return made


def receive(connection: socket.socket, size: int) -> bytes:
    """The last bytes of so many, or fewer at the end."""
    data, left = b"", size
    while left:
        data = connection.recv(min(left, 1 << 16))
        if not data:
            raise EOFError
        left -= len(data)
    return data


def send(connection: socket.socket, size: int) -> None:
    while size > 0:
        size -= connection.send(CHUNK[:size])


def head(connection: socket.socket) -> tuple[bytes, int]:
    data = b""
    while len(data) < HEAD.size:
        more = connection.recv(HEAD.size - len(data))
        if not more:
            raise EOFError
        data += more
    kind, size = HEAD.unpack(data)
    return kind, size


def spin(seconds: float) -> None:
    """Uses so much processor time, however long that takes."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def serve(FLAGS: argparse.Namespace) -> None:
    """A ps: all connections share one lock while it works on a gradient, as one thread would."""
    barrier = threading.Barrier(max(1, len(addresses(FLAGS.worker_hosts))))
    lock = threading.Lock()

    def answer(connection: socket.socket) -> None:
        try:
            while True:
                kind, size = head(connection)
                if kind == FETCH:
                    send(connection, size)
                    continue
                if kind == SEND:
                    receive(connection, size)
                    with lock:
                        spin(FLAGS.ps_spin_s)
                else:
                    barrier.wait()
                connection.sendall(b"k")
        except (EOFError, OSError, threading.BrokenBarrierError):
            connection.close()

    server = listen(FLAGS)
    while True:
        threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()


def train(FLAGS: argparse.Namespace, me: str) -> None:
    times = FLAGS.times if me == FLAGS.slow else 1.0
    shards = [int(size) for size in FLAGS.shards.split(",") if size]
    held = [connected(address) for address in addresses(FLAGS.ps_hosts)[: len(shards)]]
    gpu, step, saved = Gpu(), 0, time.monotonic()
    files = sorted(Path(FLAGS.input_files).expanduser().iterdir()) if FLAGS.input_files else []
    while True:
        if FLAGS.input_s:
            time.sleep(FLAGS.input_s)
        if files:
            files[step % len(files)].read_bytes()
        both(held, shards, fetch)
        gpu.compute(FLAGS.gpu_s * times)
        spin(FLAGS.spin_s * times)
        both(held, shards, give)
        if FLAGS.sync and held:
            held[0].sendall(HEAD.pack(MEET, 0))
            receive(held[0], 1)
        step += 1
        print(f"step {step}", flush=True)
        gpu.report()
        if FLAGS.save_every_s and me == "worker:0" and time.monotonic() - saved >= FLAGS.save_every_s:
            save(Path(FLAGS.output_dir), step, FLAGS.save_s)
            saved = time.monotonic()


def fetch(server: socket.socket, size: int) -> None:
    server.sendall(HEAD.pack(FETCH, size))
    receive(server, size)


def give(server: socket.socket, size: int) -> None:
    server.sendall(HEAD.pack(SEND, size))
    send(server, size)
    receive(server, 1)


def both(held: list[socket.socket], shards: list[int], act: object) -> None:
    """With each ps at the same time."""
    assert callable(act)
    threads = [threading.Thread(target=act, args=pair) for pair in zip(held, shards, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def save(directory: Path, step: int, seconds: float) -> None:
    """Writes 1 MB each 0.1 s, under another name until it is whole."""
    directory.mkdir(parents=True, exist_ok=True)
    new = directory / f"model-{step}.pt.tmp"
    with new.open("wb") as file:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            file.write(bytes(1 << 20))
            time.sleep(0.1)
    new.replace(directory / f"model-{step}.pt")
    for old in sorted(directory.glob("model-*.pt"), key=lambda path: path.stat().st_mtime)[:-3]:
        old.unlink()


def feed(FLAGS: argparse.Namespace) -> None:
    """The client of in-graph training: it makes the batch of each worker, and sends it, one after the other."""
    held = [connected(address) for address in addresses(FLAGS.worker_hosts)]
    step = 0
    while True:
        for one in held:
            spin(FLAGS.spin_s)
            time.sleep(FLAGS.input_s)
            one.sendall(HEAD.pack(SEND, FLAGS.feed_bytes))
            send(one, FLAGS.feed_bytes)
        for one in held:
            receive(one, 1)
        step += 1
        print(f"step {step}", flush=True)


def compute_what_is_fed(FLAGS: argparse.Namespace) -> None:
    gpu = Gpu()
    connection = listen(FLAGS).accept()[0]
    while True:
        receive(connection, head(connection)[1])
        gpu.compute(FLAGS.gpu_s)
        connection.sendall(b"k")


main()
