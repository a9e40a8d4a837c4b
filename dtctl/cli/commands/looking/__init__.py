"""Commands that change nothing."""
