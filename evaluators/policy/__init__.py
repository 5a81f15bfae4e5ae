"""What candidates may do: which library calls, which constructs. Pure text and bytes: nothing here runs a candidate.

- `operators.denied_operators(called, rules, known)`: torch operators that a runner must refuse
- `symbols.foreign_symbols(product, ...)`: what a shared library takes from others
- `triage.triage(candidate)`: what its text looks like
- `gate.examine(candidate, product, rules)`: all that can be said before it runs
"""
