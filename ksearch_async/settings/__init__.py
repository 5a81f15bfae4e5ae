"""Settings: one table, resolved from defaults, file, environment and flags; models and their prices."""
