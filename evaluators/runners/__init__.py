"""Runners: disposable processes that call one candidate each. Siblings by what they load."""
