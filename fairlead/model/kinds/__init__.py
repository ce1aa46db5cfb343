"""One record per object kind, grouped by who speaks about them. The registry in fairlead/model/registry.py lists them all."""
