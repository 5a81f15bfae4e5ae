"""Writes plans of programs as C++."""
