"""`python -m dtctl`."""

from dtctl.cli import main

main()
