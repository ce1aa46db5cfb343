"""The agent of a node: registers it, keeps its lease, starts and stops what is bound to it, and says what became of it."""
