# ruff: noqa: PTH123, PTH208, SIM115
"""Small programs that meet what users cause, by name: the argument, or the task's line in the file `names`.

In that case they wait for a file `go` first, as a start fails at once of some of them.
"""

import ctypes
import importlib
import mmap
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


def trains_on() -> None:
    for step in range(1, 100_000):
        print("step", step, flush=True)
        time.sleep(0.2)


def port_of_another() -> None:
    held = socket.create_server(("127.0.0.1", 0))
    socket.create_server(held.getsockname())


def disk_without_room() -> None:
    with open("/dev/full", "w") as full:
        full.write("x")


def limit_of_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    bytearray(4 << 30)


def limit_of_threads() -> None:
    _without_root()
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    threading.Thread(target=time.sleep, args=(1,)).start()


def limit_of_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    [os.dup(0) for _ in range(30)]


def limit_of_time() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (1, 3))
    while True:
        pass


def limit_of_size() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    with tempfile.TemporaryFile() as file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
        file.write(bytes(1 << 20))
        file.flush()


def missing_file() -> None:
    open("data/train.csv")


def missing_directory() -> None:
    os.listdir("/nowhere/mnist")


def missing_module() -> None:
    importlib.import_module("sklearn_that_nobody_has")


def removed_module() -> None:
    importlib.import_module("parser")  # removed in 3.10


def newer_python() -> None:
    program = Path(tempfile.mkdtemp()) / "newer.py"
    program.write_text("match step:\n    case 1 = pass\n")
    runpy.run_path(str(program))


def wrong_flag() -> None:
    import argparse

    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int)
    flags.parse_args(["--step", "many"])


def flags_not_taken() -> None:
    import argparse

    argparse.ArgumentParser().parse_args(["--ps_hosts=a:1", "--job_name=worker"])


def no_permission() -> None:
    _without_root()
    open("/etc/shadow-of-nobody", "w")


def cut_file() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 16)
        mapped = mmap.mmap(file.fileno(), 1 << 16)
        file.truncate(0)
        mapped[1 << 15]


def crash() -> None:
    ctypes.string_at(0)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def unresolved_name() -> None:
    socket.create_connection(("no-such-host.invalid", 1))


def no_peer() -> None:
    socket.create_connection(("127.0.0.1", 9))


def own_message() -> None:
    sys.exit("there is nothing to train on")


def not_a_number() -> None:
    raise RuntimeError("loss is nan at step 7")


def expired_token() -> None:
    raise PermissionError("Token has expired")


def torch_without_cudnn() -> None:
    raise ImportError("libcudnn.so.9: cannot open shared object file: No such file or directory")


def cuda_out_of_memory() -> None:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB free.")


def tf_contrib() -> None:
    print(importlib.import_module("types").ModuleType("tensorflow").contrib)


def tf_app() -> None:
    print(importlib.import_module("types").ModuleType("tensorflow").app)


def keras_3() -> None:
    raise ImportError("BasicLSTMCell is not available with Keras 3.")


def missing_argument() -> None:
    import argparse

    flags = argparse.ArgumentParser()
    flags.add_argument("--data", required=True)
    flags.parse_args([])


def other_model() -> None:
    raise ValueError("Received incompatible tensor with shape (10,) when attempting to restore variable (12,)")


def exit_code_3() -> None:
    sys.exit(3)


def pip_without_index() -> None:
    nowhere = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "1",
        "PIP_FIND_LINKS": "",
        "PIP_NO_INDEX": "0",
    }
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "no-such-package-of-dtctl"]
    sys.exit(subprocess.run(pip, env={**os.environ, **nowhere}, check=False).returncode)


def _without_root() -> None:
    if os.getuid() == 0:
        os.setuid(65534)


if len(sys.argv) > 1:
    globals()[sys.argv[1]]()
else:
    name = Path("names").read_text().split()[int(os.environ["DTCTL_TASK"].rpartition(":")[2])]
    while name != "trains_on" and not Path("go").exists():
        time.sleep(0.1)
    globals()[name]()
