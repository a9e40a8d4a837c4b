"""What becomes of a run when something breaks: faults on separate hosts, and how long it takes to get over them."""
