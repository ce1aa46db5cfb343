"""Real servers for tests, started from pip-installed binaries, and a proxy that breaks the network in front of them."""
