"""Hosts whose network holds the others up: rows of the table of `check --deep`."""

from __future__ import annotations

from dtctl.operations.diagnosis.signature import Level, Signature

SLOW = Signature(
    "host_exchanges_slowly",
    Level.SLOWS,
    "a host sends or receives at less than 0.8 of the usual speed, whoever its partner is",
    "pairs of hosts that exchange data, each host with several others one after the other, with --deep",
    "{hosts} is slow to exchange data, whoever its partner is[; it sends {sent_bytes} a second, the others "
    "{usual_sent_bytes}][; it receives {received_bytes} a second, the others {usual_received_bytes}][; a word there "
    "and back takes {latency_ms} ms, elsewhere {usual_latency_ms} ms][; {again} of its packets have to be sent again]"
    "[; its link has {mbits}, theirs {usual_mbits}][; its link is {duplex}, theirs {usual_duplex}][; its MTU is {mtu}, "
    "theirs {usual_mtu}][; its packets wait in a queue of kind {queue}, theirs in {usual_queue}]",
    (
        "dtctl exec {at} -- ip -s -d link show dev {interface}    shows errors, and what holds packets back",
        "leave it out, or let another host take its place: jobs.NAME.hosts in cluster.yaml",
    ),
)
UNMEASURED = Signature(
    "exchange_failed",
    Level.SLOWS,
    "a host could exchange data with nobody",
    "the same",
    "{hosts} could not exchange data, though connections are made: {said}",
    ("dtctl check --deep    once more: is it the same one?",),
)

ROWS = (SLOW, UNMEASURED)
