"""The machine form of the stacks of trainers."""

from __future__ import annotations

from typing import Any

from dtctl.agent.rooms.dump.records import ProcessDump
from dtctl.render.machine.document import picked
from dtctl.rooms.dump.operation import Dumps


def dumps(found: Dumps) -> dict[str, Any]:
    return {
        "run": found.run,
        "tasks": [
            {
                **picked(task, "task host answer.attempt answer.state"),
                "processes": [_process(process) for process in task.answer["processes"]],
                **picked(task, "answer.omitted=processesOmitted"),
            }
            for task in found.tasks
        ],
    }


def _process(process: ProcessDump) -> dict[str, Any]:
    stacks = "stacks[thread name? tid main active gil=holdsGil frames omitted=framesOmitted] stacks_omitted"
    threads = "threads[tid name state wchan=waitsIn? kernel=kernelStack] threads_omitted"
    return picked(process, f"pid command way=stacksBy {stacks} missing said=pySpySaid? {threads}")
