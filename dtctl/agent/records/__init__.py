"""The fields of dtctl's records: types, ranges and defaults. Every interface validates its input by them.

Here: the requests to an agent that a run needs, by the names of functions and records in the agent's folder; rooms/
adds those of the rooms, and imports each when it is needed.
"""

PROTOCOL = 2
"""The version of the protocol between controller and session."""


class Exchange:
    """A request: the function that handles it, and the records of the request and of its result."""

    def __init__(self, handler: str, request: str, result: str) -> None:
        self.handler = handler
        self.request = request
        self.result = result


EXCHANGES = {
    "up": Exchange("requests.up.up", "records.starting.UpRequest", "records.answers.UpResult"),
    "ports": Exchange("requests.starting.choose_ports", "records.requests.PortsRequest", "records.answers.PortsResult"),
    "environment": Exchange(
        "requests.setup.has_environment", "records.starting.EnvironmentRequest", "records.starting.EnvironmentResult"
    ),
    "push": Exchange("bundles.store.push", "records.requests.PushRequest", "records.answers.PushResult"),
    "status": Exchange("requests.status.status", "records.requests.StatusRequest", "records.answers.StatusResult"),
    "watch": Exchange("requests.status.watch", "records.requests.WatchRequest", "records.answers.RunResult"),
    "logs": Exchange("requests.logs.logs", "records.requests.LogsRequest", "records.answers.RunResult"),
    "setup_logs": Exchange("requests.setup.setup_logs", "records.requests.Request", "records.answers.SetupLogsResult"),
    "runs": Exchange("requests.status.list_runs", "records.requests.RunsRequest", "records.answers.RunsResult"),
    "stop": Exchange("requests.stop.stop", "records.requests.StopRequest", "records.answers.StopResult"),
    "restart": Exchange("requests.stop.restart", "records.requests.RestartRequest", "records.answers.RestartResult"),
    "drain": Exchange("requests.drain.drain", "records.requests.DrainRequest", "records.answers.StopResult"),
    "undrain": Exchange("requests.drain.undrain", "records.requests.UndrainRequest", "records.answers.RestartResult"),
    "readmit": Exchange("requests.readmit.readmit", "records.requests.ReadmitRequest", "records.answers.ReadmitResult"),
    "join": Exchange("requests.join.join", "records.requests.JoinRequest", "records.answers.JoinResult"),
    "down": Exchange("requests.down.down", "records.requests.DownRequest", "records.answers.DownResult"),
    "gc": Exchange("requests.gc.collect", "records.gc.GcRequest", "records.gc.GcResult"),
    "events": Exchange("requests.logs.events", "records.requests.EventsRequest", "records.answers.EventsResult"),
}
"""Request type -> its records. A request without parameters has the plain `Request`."""


WORDS = {
    "start": "records.starting.StartMessage",
    "look": "records.starting.LookWord",
    "keep": "records.requests.ControlMessage",
    "abort": "records.requests.ControlMessage",
    "manifest": "records.requests.ControlMessage",
    "digests": "records.requests.DigestsWord",
    "file": "records.requests.FileWord",
    "feeder": "records.requests.FeederWord",
    "feeder_review": "records.requests.FeederReviewWord",
    "alive": "records.requests.ControlMessage",
}
"""The messages that a controller sends during a request."""


FRAMES = {
    "greeting": "records.answers.Greeting",
    "lacking": "records.answers.Lacking",
    "error": "records.answers.Refused",
    "beat": "records.answers.Alive",
    "progress": "records.answers.PhaseProgress",
    "need": "records.answers.Need",
    "fed": "records.answers.Fed",
    "prepared": "records.answers.Prepared",
    "looked": "records.answers.Facts",
    "started": "records.answers.Started",
    "states": "records.answers.States",
    "stopping": "records.answers.Stopping",
    "log": "records.answers.Log",
    "output": "records.answers.Output",
    "event": "records.whole_run.HistoryEvent",
}
"""The frames that an agent sends before the result of a request, whose type is `result`."""
