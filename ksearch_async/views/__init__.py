"""Views of a run: plain lines, live terminal, tree, comparison, report and dashboard."""
