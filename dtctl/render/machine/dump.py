"""The machine form of `dtctl dump`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtctl.render.machine.document import picked

if TYPE_CHECKING:
    from dtctl.agent.records.vitals import ProcessDump
    from dtctl.operations.dump import Dumps


def dumps(found: Dumps) -> dict[str, Any]:
    return {
        "run": found.run,
        "tasks": [
            {
                **picked(one, "task host"),
                **picked(one.told, "attempt state"),
                "processes": [_process(process) for process in one.told["processes"]],
                "processesOmitted": one.told["omitted"],
            }
            for one in found.tasks
        ],
    }


def _process(process: ProcessDump) -> dict[str, Any]:
    return {
        **picked(process, "pid command way=stacksBy"),
        "stacks": [
            picked(stack, "thread name? tid main active gil=holdsGil frames omitted=framesOmitted")
            for stack in process["stacks"]
        ],
        **picked(process, "stacks_omitted missing said=pySpySaid?"),
        "threads": [
            picked(thread, "tid name state wchan=waitsIn? kernel=kernelStack") for thread in process["threads"]
        ],
        "threadsOmitted": process["threads_omitted"],
    }
