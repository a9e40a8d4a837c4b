"""Real hosts to test against: sshd and dropbear on loopback, and fleets of hosts in network namespaces."""
