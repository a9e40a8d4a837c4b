"""Whether the host has what a run will need."""
