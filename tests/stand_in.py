"""A program that behaves as a trainer does, for tests of what is around trainers: no framework.

Each task listens on its address, as a server of TensorFlow does; nobody says anything there.

ps tasks never exit by themselves; the others print a line a tick and exit after --seconds with --exit.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", default="worker")
    parser.add_argument("--task_index", type=int, default=0)
    parser.add_argument("--ps_hosts", default="")
    parser.add_argument("--worker_hosts", default="")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--until_file", default="", help="exit as after --seconds once this file is there")
    parser.add_argument("--tick", type=float, default=0.1)
    parser.add_argument("--exit", type=int, default=0)
    parser.add_argument("--fail_attempts", type=int, default=0, help="exit with 1 at the end of as many first attempts")
    parser.add_argument("--only", default="", help="the options above count for this task alone, as in worker:1")
    parser.add_argument("--ignore_sigterm", action="store_true")
    parser.add_argument("--child_in_new_session", action="store_true")
    parser.add_argument("--show", default="", help="environment variables to print")
    options = parser.parse_args()
    me = f"{options.job_name}:{options.task_index}"
    special = options.only in ("", me) and options.job_name != "ps"

    _server = listen(options)  # for as long as it runs
    signal.signal(signal.SIGTERM, signal.SIG_IGN if options.ignore_sigterm else lambda *_: sys.exit(0))
    print(f"{me} attempt {os.environ.get('DTCTL_ATTEMPT')} pid {os.getpid()}")
    for name in filter(None, options.show.split(",")):
        print(f"{name}={os.environ.get(name)!r}")
    if options.child_in_new_session:
        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print(f"child {child.pid}")
    end = time.monotonic() + (options.seconds if special else 1e9)
    step = 0
    while time.monotonic() < end and not (special and options.until_file and Path(options.until_file).exists()):
        step += 1
        print(f"{me} step {step}", flush=True)
        time.sleep(options.tick)
    if special and int(os.environ.get("DTCTL_ATTEMPT", "1")) <= options.fail_attempts:
        print("failing on purpose")
        sys.exit(1)
    sys.exit(options.exit)


def listen(options: argparse.Namespace) -> socket.socket | None:
    addresses = [address for address in getattr(options, f"{options.job_name}_hosts", "").split(",") if address]
    if not addresses:
        return None
    port = int(addresses[options.task_index].rpartition(":")[2])
    return socket.create_server(("", port))


main()
