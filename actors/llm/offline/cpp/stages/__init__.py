"""Writes plans of staged programs as C++."""
