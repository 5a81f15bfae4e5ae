"""Takes rights away from a candidate's process, in layers, before the candidate is loaded. Stdlib only, Linux only.

- `confine(profile) -> Confined`, in the process that will load the candidate; `seal(confined)` later, on GPUs
- `profiles.run(...)`, `run_interpreted(...)`, `run_cuda(...)`, `build(...)`
- `probe.probe_layers() -> HostLayers`: the layers that this host allows

docs/threat-model.md describes what the layers cover and what they do not.
"""
