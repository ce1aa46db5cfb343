"""What runs instances: one interface (contract.py), real processes (process.py) and none at all (simulated.py)."""
