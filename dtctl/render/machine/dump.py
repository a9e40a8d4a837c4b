"""The machine form of `dtctl dump`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dtctl.agent.records.vitals import ProcessDump
    from dtctl.operations.dump import Dumps


def dumps(found: Dumps) -> dict[str, Any]:
    return {
        "run": found.run,
        "tasks": [
            {
                "task": str(one.task),
                "host": one.host,
                "attempt": one.told["attempt"],
                "state": one.told["state"],
                "processes": [_process(process) for process in one.told["processes"]],
                "processesOmitted": one.told["omitted"],
            }
            for one in found.tasks
        ],
    }


def _process(process: ProcessDump) -> dict[str, Any]:
    return {
        "pid": process["pid"],
        "command": process["command"],
        "stacksBy": process["way"],
        "stacks": [
            {
                "thread": stack["thread"],
                "name": stack["name"] or None,
                "tid": stack["tid"],
                "main": stack["main"],
                "active": stack["active"],
                "holdsGil": stack["gil"],
                "frames": [dict(frame) for frame in stack["frames"]],
                "framesOmitted": stack["omitted"],
            }
            for stack in process["stacks"]
        ],
        "stacksOmitted": process["stacks_omitted"],
        "missing": process["missing"],
        "pySpySaid": process["said"] or None,
        "threads": [
            {
                "tid": thread["tid"],
                "name": thread["name"],
                "state": thread["state"],
                "waitsIn": thread["wchan"] or None,
                "kernelStack": list(thread["kernel"]),
            }
            for thread in process["threads"]
        ],
        "threadsOmitted": process["threads_omitted"],
    }
