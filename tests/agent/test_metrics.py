"""The request `metrics`: what a real agent tells of event files that grow."""

from __future__ import annotations

from tests.agent.host import AgentHost, shell, task
from tests.event_files import scalar

NAME = "events.out.tfevents.1.host"


def test_scalars_are_reported_as_they_are_written_until_the_run_ends(host: AgentHost) -> None:
    out = host.home / "out" / "train"
    out.mkdir(parents=True)
    (out / NAME).write_bytes(scalar(1, "loss", 0.5) + scalar(1, "lr", 1.0))
    waiting = shell("worker:0", "until [ -e $HOME/go ]; do sleep 0.05; done")
    host.up(host.spec(waiting, checkpoint_dirs=["\0HOME/out"]))
    with host.open() as talk:
        talk.send("metrics", **host.about({"tags": ["lo*"], "points": 10, "follow": True}))
        (folder,) = talk.await_type("points")["folders"]
        assert (folder["dir"], folder["name"]) == (str(host.home / "out"), "train")
        assert [(one["tag"], one["steps"]) for one in folder["series"]] == [("loss", [1])]
        with (out / NAME).open("ab") as file:
            file.write(scalar(2, "loss", 0.25) + scalar(3, "loss", float("nan")))
        (folder,) = talk.await_type("points")["folders"]
        (series,) = folder["series"]
        assert (series["steps"], series["values"]) == ([2, 3], ["0.25", "nan"])
        (host.home / "go").touch()
        assert talk.await_type("result")["folders"] == []
    answer = host.ask("metrics", points=2)
    assert answer["dirs"] == [str(host.home / "out")]
    loss, rate = answer["folders"][0]["series"]
    assert (loss["steps"], loss["count"], rate["values"]) == ([1, 3], 3, ["1.0"])


def test_without_event_files_there_is_nothing_to_tell(host: AgentHost) -> None:
    host.up(host.spec(task("worker:0", "sleep", "1000"), dirs=["\0HOME/logs"]))
    answer = host.ask("metrics")
    assert (answer["folders"], answer["problems"], answer["dirs"]) == ([], [], [str(host.home / "logs")])
