"""The cost of dtctl, as ratios to its peers measured in the same run. `make bench`; nothing here is asserted."""
