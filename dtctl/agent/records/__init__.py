"""What the records of dtctl hold: types, ranges, defaults. Every seam checks by them."""

PROTOCOL = 2
"""Of a controller and a session."""
