"""What is wrong with a run, and how its tasks do."""
