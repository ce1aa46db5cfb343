"""Small real programs, and the manifests that run them: what the local platform shows at work. Each is started as
`python -m fairlead.samples.NAME`, uses the standard library alone and imports nothing of the control plane: a workload knows only
its environment."""
