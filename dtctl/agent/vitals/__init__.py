"""The health of the host and of the processes of its tasks."""
