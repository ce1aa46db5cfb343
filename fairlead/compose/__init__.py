"""Programs put together from the parts: a plane's server, an agent, the local platform. Decides nothing; main.py hands it what it
must not pick itself (stores). Called by main.py and by the rigs that start real processes."""
