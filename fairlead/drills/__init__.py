"""Drills: failures practised on the real local platform, each with what it does, what it expects and what it saw."""
