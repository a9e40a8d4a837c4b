"""Imports every module of dtctl, and what the tables of rooms name; exits with 1 if one cannot be imported."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import dtctl
from dtctl.agent import rooms as of_agent
from dtctl.cli.table import COMMANDS
from dtctl.rooms import Room, each

SCRIPTS = ("dtctl.__main__", "dtctl.agent.bootstrap", "dtctl.agent.dump.site.sitecustomize")
"""Programs, which do their work when they are imported."""

for found in pkgutil.walk_packages(dtctl.__path__, "dtctl."):
    if found.name not in SCRIPTS:
        import_module(found.name)
for row in (*of_agent.EXCHANGES.values(), *of_agent.TOPICS.values()):
    for name in (row.handler, row.request, row.result):
        of_agent.load(name)
for name in (*of_agent.FRAMES.values(), *of_agent.WORDS.values()):
    of_agent.load(name)
for part in Room._fields:
    if part not in ("commands", "needs"):
        list(each(part))
for name, entry in COMMANDS.items():
    getattr(import_module(f"dtctl.{entry.module}"), name)
