"""TritonBench (thunlp/TritonBench): its problems G, Triton operators, and T, torch functions, as tasks of ours.

- `reading.py`: `tritonbench:PATH#G/NAME` → `TaskSpec`; runs nothing, imports no torch
- `tracing.py`, `replay.py`: inputs and reference of a problem, in the judge
- `packing.py`: candidate files in and out
- `prompting.py`: what a model is told
- `scoring.py`: call and execution accuracy, speedup, efficiency
"""
