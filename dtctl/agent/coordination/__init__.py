"""How the agents of a run act as one: the link between them, and the decisions of the coordinator."""
