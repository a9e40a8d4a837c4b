"""Workers that end when their connection to the ps does, as TensorFlow's do; those that are restarted do not train."""

import argparse
import os
import socket
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("ps_hosts", "worker_hosts", "job_name"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--task_index", type=int)
    options = parser.parse_args()
    name, _, port = options.ps_hosts.rpartition(":")
    if options.job_name == "ps":
        serve(int(port))
    own = options.worker_hosts.split(",")[options.task_index]
    with socket.create_server(("", int(own.rpartition(":")[2]))):
        if os.environ["DTCTL_ATTEMPT"] != "1":
            time.sleep(1000)
        train(connected(name, int(port)))


def serve(port: int) -> None:
    server, connections = socket.create_server(("", port)), []
    while True:
        connections.append(server.accept()[0])
        connections[-1].sendall(b"?")


def connected(name: str, port: int) -> socket.socket:
    while True:
        try:
            connection = socket.create_connection((name, port))
            connection.recv(1)
        except OSError:
            time.sleep(0.1)
        else:
            return connection


def train(connection: socket.socket) -> None:
    connection.settimeout(0.2)
    for step in range(100_000):
        print("step", step, flush=True)
        connection.sendall(b"gradient")
        try:
            if not connection.recv(1):
                raise ConnectionResetError(104, "Connection reset by peer")
        except TimeoutError:
            pass


main()
