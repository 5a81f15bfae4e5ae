"""Takes rights away from a candidate's process, in layers, before the candidate is loaded. Stdlib only, Linux only.

- `confine(profile) -> Confined`, in the process that will hold the candidate; `seal(confined)` later, on GPUs
- `profiles.run(...)`, `run_interpreted(...)`, `run_cuda(...)`, `build(...)`
- `probe.probe_layers() -> HostLayers`: what this host allows

docs/threat-model.md says what the layers cover and what they do not.
"""
