"""The report: one HTML page or figures about runs, for people who were not there."""
