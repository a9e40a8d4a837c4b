"""What is wrong with a run: known signatures, joined with what is known of its tasks, hosts and network."""
