"""Trying a change on a copy of the planes: the production judges, controllers and scheduler, with pretended agents and time.

Owns the copy and what is told of it. Never writes to a plane. Called by the resource API through fairlead/client/planning.py.
"""
