"""Reports and figures of runs, for people who were not there: files that need nothing but themselves."""
