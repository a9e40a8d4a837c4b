"""dtctl and the other ways to do the same on many hosts over SSH, side by side: what docs/performance.md tells."""
