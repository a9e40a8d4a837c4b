"""Listens for other hosts and connects to them, as tasks do."""
