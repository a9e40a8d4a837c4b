"""The fields of dtctl's records: types, ranges and defaults. Every interface validates its input by them.

Here: the requests to an agent, by records that are named as MODULE.NAME; each is imported when it is needed.
"""

PROTOCOL = 2
"""The version of the protocol between controller and session."""


class Exchange:
    """A request: the function that handles it, by its name as seen from requests/, and what both hold."""

    def __init__(self, handler: str, request: str, result: str) -> None:
        self.handler = handler
        self.request = request
        self.result = result


EXCHANGES = {
    "up": Exchange("up.up", "starting.UpRequest", "answers.UpResult"),
    "ports": Exchange("starting.choose_ports", "requests.PortsRequest", "answers.PortsResult"),
    "environment": Exchange("setup.has_environment", "starting.EnvironmentRequest", "starting.EnvironmentResult"),
    "push": Exchange(".bundles.store.push", "requests.PushRequest", "answers.PushResult"),
    "data_push": Exchange("data.push", "starting.DataPushRequest", "answers.DataPushResult"),
    "data_status": Exchange("data.status", "starting.DataRequest", "checks.DataFacts"),
    "data_verify": Exchange("data.verify", "starting.DataRequest", "checks.DataFacts"),
    "data_drop": Exchange("data.drop", "starting.DataRequest", "answers.DataDropResult"),
    "status": Exchange("status.status", "requests.StatusRequest", "answers.StatusResult"),
    "watch": Exchange("status.watch", "requests.WatchRequest", "answers.RunResult"),
    "logs": Exchange("logs.logs", "requests.LogsRequest", "answers.RunResult"),
    "setup_logs": Exchange("setup.setup_logs", "requests.Request", "answers.SetupLogsResult"),
    "runs": Exchange("status.list_runs", "requests.RunsRequest", "answers.RunsResult"),
    "stop": Exchange("stop.stop", "requests.StopRequest", "answers.StopResult"),
    "restart": Exchange("stop.restart", "requests.RestartRequest", "answers.RestartResult"),
    "drain": Exchange("drain.drain", "requests.DrainRequest", "answers.StopResult"),
    "undrain": Exchange("drain.undrain", "requests.UndrainRequest", "answers.RestartResult"),
    "down": Exchange("down.down", "requests.DownRequest", "answers.DownResult"),
    "exec": Exchange("execute.execute", "requests.ExecRequest", "answers.ExecResult"),
    "diagnose": Exchange("health.diagnose", "requests.Request", "vitals.DiagnoseResult"),
    "check": Exchange(".checks.check", "starting.CheckRequest", "checks.CheckResult"),
    "events": Exchange("logs.events", "requests.EventsRequest", "answers.EventsResult"),
    "metrics": Exchange("health.metrics", "requests.MetricsRequest", "tensorboard.MetricsResult"),
    "dump": Exchange("health.dump", "requests.DumpRequest", "answers.RunResult"),
    "event_dirs": Exchange("tensorboard.event_dirs", "requests.Request", "tensorboard.EventDirsResult"),
    "event_files": Exchange("tensorboard.event_files", "tensorboard.EventFilesRequest", "answers.RunResult"),
    "tensorboard": Exchange("tensorboard.tensorboard", "requests.Request", "tensorboard.TensorboardResult"),
    "verify": Exchange("checkpoints.verify", "checkpoints.VerifyRequest", "checkpoints.VerifyResult"),
    "fetch": Exchange("checkpoints.fetch", "checkpoints.FetchRequest", "checkpoints.FetchResult"),
    "prune": Exchange("checkpoints.prune", "checkpoints.PruneRequest", "checkpoints.PruneResult"),
    "store": Exchange("checkpoints.store", "checkpoints.StoreRequest", "checkpoints.StoreResult"),
    "gc": Exchange("gc.collect", "requests.GcRequest", "answers.GcResult"),
}
"""Request type -> its records. A request without parameters has the plain `requests.Request`."""


WORDS = {
    "start": "starting.StartMessage",
    "look": "starting.LookWord",
    "keep": "requests.ControlMessage",
    "abort": "requests.ControlMessage",
    "manifest": "requests.ControlMessage",
    "digests": "requests.DigestsWord",
    "file": "requests.FileWord",
    "feeder": "requests.FeederWord",
    "feeder_review": "requests.FeederReviewWord",
    "part": "checkpoints.PartWord",
    "alive": "requests.ControlMessage",
    "open": "tensorboard.ChannelWord",
    "piece": "tensorboard.ChannelWord",
    "taken": "tensorboard.TakenWord",
    "closed": "tensorboard.ChannelWord",
}
"""The messages that a controller sends during a request."""
