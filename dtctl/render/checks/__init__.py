"""What `check` has found, in words."""
