"""A small model of the commit protocol: head, epoch and position, with late commits (docs/commit-protocol.md).

Owns no production code; the authority and the engines are built to it. `records` and `store` say what a store does,
`leader` and `server` what a plane's servers do, `world` breaks things, `checker` reads the history and knows nothing of
how it came about. Called by tests and by `python -m fairlead.sim.commit_model`.
"""
