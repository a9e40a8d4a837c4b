"""How the host and the processes of its tasks do."""
