"""A cluster file that names other hosts than those of its live run, of which the new run would ask none."""

from __future__ import annotations

from tests.desk import Desk, cluster_text


def write(home: Desk, host: str, more: str = "") -> None:
    trainer = "command: [python, train.py], dialect: none"
    home.write_cluster(
        cluster_text(
            jobs=f"{{worker: {{hosts: [{host}]}}}}", trainer=trainer, **({"coordinator": more} if more else {})
        )
    )
    (home.project / "train.py").write_text("import time\ntime.sleep(1000)\n")


def test_a_run_whose_hosts_the_file_does_not_use_any_more_is_replaced(home: Desk) -> None:
    """Both hosts are this machine: the coordinator of the old run has the port that the file sets for the new one."""
    port = "{port: 22790}"
    write(home, "node-1", port)
    home.dtctl("up", "--local")
    old = home.status()["run"]
    write(home, "node-2", port)
    refused = home.run("up", "--local")
    assert refused.returncode == 5
    assert f"another run of demo is live on node-1: {old}" in " ".join(refused.stderr.split())
    assert "dtctl up --replace" in refused.stderr
    done = home.run("up", "--local", "--replace")
    assert done.returncode == 0, done.stderr
    assert f"replaced {old}" in done.stderr
    shown = home.dtctl("runs")
    assert f"{old}  Stopped" in shown
    assert shown.count(" Running ") == 1
    assert home.status()["run"] != old
