"""What dtctl costs, as ratios to its peers measured in one run. `make bench`; nothing here is asserted."""
