"""`python -m dtctl`."""

from dtctl.cli import program

program()
