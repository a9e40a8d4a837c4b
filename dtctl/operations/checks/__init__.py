"""Whether hosts have what a run will need, found out before it starts."""
