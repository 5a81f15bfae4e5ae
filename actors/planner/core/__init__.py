"""The search as a pure state machine: `decide(state, event) -> facts`, `evolve(state, fact) -> state`.

No clock, no randomness, no I/O, no logging. Start reading at `decide.py`.
"""
