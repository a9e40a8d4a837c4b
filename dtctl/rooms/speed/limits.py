"""The limits of the rules, from which on what was measured is a cause; each with its reason.

They were set by the experiments of docs/speed.md: what healthy runs reach stays below, what was slowed on purpose is
above.
"""

from __future__ import annotations

WAITS = 0.3
"""The share of the workers' time from which on waiting for other tasks is a cause: removing less brings 1.4 times at
most, which a person would not change a program for."""
FULL = 0.85
"""The share of a link's speed, or of a thread's time, from which on it is full: TCP carries 94 % of a link's bits at
most, and a sample of 10 s has gaps between steps."""
ONE = 1.05
"""The most processors that threads use together of which one runs at a time, because they share a lock: some of their
work needs no lock."""
LEAST_SPEED = 2e5
"""Bytes a second while data is under way. Below, it is latency: an acknowledgement may be 40 ms late, so 8 kB messages
seem to take as long."""
LARGER = 1.5
"""How many times its fair share a server carries that has too much: sizes of variables are never quite equal."""
STANDS_OUT = 1.35
"""How many times as long as at the next host data is under way at the one that is named for a slow network."""
RESENT = 0.01
"""The share of segments that are sent again: a clean network has below 0.1 %, and TCP slows down from 1 % on."""
QUEUED = 4.0
"""How many times the usual round trip one takes at least where packets wait in a queue that is full: it overflows, and
the link is at fault, not what loses packets."""
LONG_S = 0.05
"""The least of that, in seconds: on a busy machine a round trip takes 20 ms before a process reads what has arrived."""
LEAST_RESENT = 1.0
"""Segments a second."""
THROTTLED = 0.2
WITHOUT_CPU = 0.3
"""The share of the time in which threads want to run. Tasks that share a machine with idle programs reach 0.1."""
LEAST_LOST = 0.3
"""Seconds a second in which the threads of a task have no processor: a ps that hardly computes waits for one most of
the time in which it wants to, on a busy machine, and loses little by that."""
OTHERS = 0.5
"""Processors that other programs keep busy."""
STOLEN = 0.1
SWAPS_BYTES = 1e6
FAULTS = 50.0
IDLE = 0.5
"""The share of a worker's time in which nothing that is measured goes on. Between a framework's steps it is less."""
SLOWER = 1.3
"""How many times as long as the others' median the slowest worker computes."""
COMPUTES = 0.6
"""The share of its time that the slowest worker computes at least: else something else is slow."""
STALE = 2.0
"""How many times as many steps of others as at equal speed lie between a worker's read and its update."""
SAVES = 0.1
"""The share of the time that checkpoints take."""
FED = 0.7
"""The share of what workers receive from tasks of the run that one of them sends, if it deals out all data."""
DEALS = 0.5
"""The share of time in which that one computes or sends."""
