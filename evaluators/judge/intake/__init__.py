"""Examination of a task before a search."""
