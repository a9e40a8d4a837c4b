"""How the pages are typed: all that the tests do otherwise than a reader would, in one place."""

from __future__ import annotations

HOSTS = {"10.0.0.21": "gpu-1", "10.0.0.22": "gpu-2"}
"""Addresses in the pages, and the hosts that answer there: ~/.ssh/config of the tests says so."""

ANSWERS = {"dtctl trust": "y\n", "dtctl down": "y\n"}
"""What a person answers to a command's question."""

CTRL_C = {"dtctl logs -f": r"\| step \d+", "dtctl logs worker:1 -f": r"\| step \d+"}
"""Commands that go on until a person has seen this."""

PATIENCE = {
    "dtctl status": r"done in .* loss .* checkpoint [\s\S]*checkpoint: step \d{3}",
    "dtctl checkpoints": "complete, newest",
}
"""Commands that a person types again until they have seen this, so that there is something to see."""

HAS_ENDED = r"(?m)^\S+: (?:Succeeded|Failed) · "
"""What nobody who waits for a state of training types again after."""

ON_A_SLOW_MACHINE = (
    r"waiting: .*",
    r".* checked in \S+ s: no problem found \(brief check; --no-check skips it\)",
    r"dtctl check also tests for .*",
    r".* (?:is|are) still loading after \S+ s; a program without a port counts as started at its first step",
    r"Ctrl-C asks whether to stop the run, or leaves it running",
)
"""Masked lines that `up` adds where something takes longer than usual; a page shows a start that does not."""

BY_NIGHT = "`make nightly PARTS=documents` types it"

NOT_TYPED = {
    ("README.md", "make demo"): f"installs TensorFlow: {BY_NIGHT}",
    ("README.md", "make test"): "this is it",
    ("README.md", "dtctl compare A B"): "A and B are runs: tests/local/test_python_api.py has two",
    ("README.md", "dtctl top"): "fills the screen: tests/local/test_top.py has a terminal",
    ("README.md", "dtctl dashboard"): "serves until Ctrl-C: tests/local/test_dashboard.py opens it",
    ("README.md", "dtctl dump worker:1"): "the run may have ended by then: tests/local/test_live.py asks live trainers",
    ("README.md", "dtctl tensorboard"): "serves until Ctrl-C: tests/local/test_live.py opens a real one",
    ("README.md", "python3 -m venv ~/.venvs/dtctl"): BY_NIGHT,
    ("README.md", ". ~/.venvs/dtctl/bin/activate"): BY_NIGHT,
    ("README.md", "pip install '.[train]'"): f"installs TensorFlow: {BY_NIGHT}",
    ("docs/trainers.md", "dtctl init --helper"): "tests/training/test_helper.py types it, and trains with it",
    ("docs/security.md", "dtctl check --print-firewall nftables"): "tests/fleet/test_check_network.py loads the rules",
    ("docs/security.md", "dtctl up --require-private"): "tests/fleet/test_check_network.py types it",
    ("docs/architecture.md", "sshd ── session"): "a picture",
}
"""Commands of pages that are typed, or of others, and why they are not."""

AT_NIGHT = {("README.md", "dtctl up --local -f"): "`make demo` is the same, and the hosts train by day"}
"""Commands that `make nightly PARTS=documents` types alone."""

NOT_TYPED_PAGES = {
    "CONTRIBUTING.md": "each is a target of the Makefile, which a test knows",
    "docs/monitoring.md": "tests/local/test_top.py types dtctl top on a terminal, test_commands.py the others",
    "docs/gpus.md": "needs a GPU; tests/agent/test_vitals.py has a stand-in for the library of its driver",
    "docs/outgrow.md": "tests/unit/operations/test_importing.py and test_export.py do what it shows",
    "docs/code.md": "tests/local/test_code.py does what it shows",
    "docs/change-the-code.md": "tests/local/test_commands.py replaces a run",
    "docs/maintenance.md": "tests/fleet/test_reboot.py drains a host that is rebooted",
    "docs/recovery.md": "tests/fleet/test_joining.py lets a host join, and scales to it",
    "docs/replace-a-host.md": "tests/fleet/test_operations.py moves the tasks of a host",
    "docs/speed.md": "tests/local/test_speed.py types it in runs that are slow on purpose",
    "docs/profile.md": "tests/local/test_profile.py profiles live trainers, tests/training/test_profile.py TensorFlow",
    "docs/dump.md": "tests/local/test_live.py asks live trainers",
    "docs/tensorboard.md": "tests/local/test_live.py opens a real one",
    "docs/check.md": "tests/fleet/test_check.py has hosts with all that is wrong there",
    "docs/data.md": "tests/local/test_data.py does what it shows",
    "docs/checkpoints.md": "tests/local/test_checkpoints.py does what it shows",
    "docs/storage-urls.md": "it needs a bucket; tests/local/test_storage_urls.py has servers of some",
    "docs/logs.md": "tests/local/test_logs.py and tests/agent/logs try each option",
    "docs/scripting.md": "tests/local/test_commands.py reads the documents of each command",
    "docs/report.md": "tests/local/test_report.py writes reports, tests/local/test_dashboard.py opens dashboards",
    "docs/faults.md": "targets of the Makefile that take hours",
    "docs/costs.md": "the target of the Makefile that measures for minutes",
    "docs/nightly.md": "targets of the Makefile that take hours",
    "docs/commands.md": "written from the commands themselves",
    "docs/agent.md": "what dtctl itself runs on a host",
}
"""Pages of which no command is typed, and why."""
