"""dtctl compared with other ways to do the same on many hosts over SSH: the results in docs/costs.md."""
