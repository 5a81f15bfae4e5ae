"""FlashInfer-Bench: definitions, workloads, solutions and traces in its formats (github.com/flashinfer-ai).

Its files are read where the user has them. None is part of this package, and its harness is never run.
"""
