"""Sixty agents on this machine, each that of another user, behind one sshd with an address of loopback for each."""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measuring import DTCTL, CannotRun
from benchmarks.servers import Servers, loopback_servers
from tests.hosts import private_network
from tests.waiting import eventually

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("sixty")]

HOSTS = 60
TRAINER = "command: [sleep, '9753']"
LIMIT_S = 300.0

COMMANDS = (
    "status",
    "status -o json",
    "events",
    "logs -n 1",
    "restart worker:3",
    "drain host-7",
    "undrain host-7",
    "stop worker:4",
    "restart worker:4",
    "diagnose",
    "exec -- true",
    "gc --dry-run",
    "ls",
    "check",
    "stop",
    "up",
    "down -y",
)


def typed(servers: Servers, command: str) -> subprocess.CompletedProcess[str]:
    words: dict[str, Any] = {"cwd": servers.directory, "env": servers.env, "timeout": LIMIT_S}
    return subprocess.run([*DTCTL, *shlex.split(command)], capture_output=True, text=True, check=False, **words)


@pytest.fixture(scope="module")
def sixty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Hosts with a run of sixty workers."""
    private_network.enter()
    directory: Path = tmp_path_factory.mktemp("desk")
    try:
        with loopback_servers(HOSTS, directory, homes=True) as servers:
            servers.write_cluster(TRAINER)
            begun = typed(servers, "up")
            assert begun.returncode == 0, begun.stderr
            yield servers
            typed(servers, "down -y")
            eventually(lambda: servers.sshd.processes().count("sleep 9753") == 0, what="every worker to have ended")
    except CannotRun as reason:
        pytest.skip(str(reason))


def test_status_shows_sixty_workers_that_run(sixty: Servers) -> None:
    found = typed(sixty, "status -o json")
    assert found.returncode == 0, found.stderr
    tasks = json.loads(found.stdout)["tasks"]
    assert [task["state"] for task in tasks] == ["running"] * HOSTS


def test_status_takes_less_time_than_ssh_to_every_tenth_host(sixty: Servers) -> None:
    """It asks one host, whose agent knows of the others."""
    ssh = ["ssh", "-F", str(sixty.ssh_config)]
    one_s = statistics.median(_seconds([*ssh, address, "true"], sixty) for address in sixty.addresses[:5])
    status_s = statistics.median(_seconds([*DTCTL, "status"], sixty) for _ in range(5))
    print(f"status {status_s:.2f} s, ssh {one_s:.2f} s: {status_s / one_s:.1f} times as long")
    assert status_s < one_s * HOSTS / 10


def _seconds(words: list[str], servers: Servers) -> float:
    begin = time.monotonic()
    subprocess.run(words, cwd=servers.directory, env=servers.env, capture_output=True, timeout=LIMIT_S, check=True)
    return time.monotonic() - begin


def test_every_command_serves_sixty_hosts(sixty: Servers) -> None:
    """In their order: the last ones end the run and start another."""
    codes = {}
    for command in COMMANDS:
        begin = time.monotonic()
        found = typed(sixty, command)
        print(f"{command}: {time.monotonic() - begin:.1f} s, {len(found.stdout.splitlines())} lines")
        print(found.stderr[-300:])
        codes[command] = found.returncode
    assert codes == dict.fromkeys(COMMANDS, 0)
