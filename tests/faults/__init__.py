"""Faults on separate hosts: their effect on a run, and the time to recover from them."""
