"""How hosts and processes do."""
