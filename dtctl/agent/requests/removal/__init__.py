"""down and gc: what old runs, and those that nobody can read, have left on a host."""
