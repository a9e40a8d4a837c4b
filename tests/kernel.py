"""Cells in a kernel of Jupyter: those on stdin, as a JSON list of [source, seconds until an interrupt or null].

Prints what each has shown, as a JSON list. A process of its own: jupyter_client leaves sockets and a loop behind.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

PATIENCE_S = 120


def main() -> None:
    manager = KernelManager(transport="ipc", ip=str(Path.home() / "kernel"))
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        print(json.dumps([_run(manager, client, *cell) for cell in json.load(sys.stdin)]))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _run(manager: Any, client: Any, source: str, interrupt_after_s: float | None) -> str:
    shown: list[str] = []

    def show(message: Any) -> None:
        content = message["content"]
        shown.append(content.get("text") or content.get("data", {}).get("text/plain", ""))

    if interrupt_after_s is not None:
        threading.Timer(interrupt_after_s, manager.interrupt_kernel).start()
    reply = client.execute_interactive(source, timeout=PATIENCE_S, output_hook=show)["content"]
    if reply["status"] == "ok":
        return "".join(shown)
    if reply["ename"] == "KeyboardInterrupt" and interrupt_after_s is not None:
        return "KeyboardInterrupt"
    sys.exit("\n".join(reply["traceback"]))


if __name__ == "__main__":
    main()
