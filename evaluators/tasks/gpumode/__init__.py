"""GPUMode's problems (github.com/gpu-mode/reference-kernels): folders with `task.yml` and `reference.py`.

- `reading.py`: a folder becomes a task; nothing of it is run
- `packing.py`: a submission becomes a candidate, and a candidate a `submission.py`
- `prompting.py`: what a model is told of a problem beyond our own rules
- `scoring.py`: the competition's figure from our verdicts
"""
