"""Notices of a run for people who do not watch it: of a new best, of its end, of trouble; sent to a webhook as JSON.

A webhook that is slow, away or broken changes nothing for the run.
"""
