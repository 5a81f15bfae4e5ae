"""Rules for candidates: operators, symbols, imports."""
