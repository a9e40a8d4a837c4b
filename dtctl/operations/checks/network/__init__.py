"""The network between the hosts of a cluster, before a run: who reaches whom, who else does, and why not."""
