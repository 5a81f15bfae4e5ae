"""Devices and their bounds: facts for models that plan and write, and rooflines. Knows no torch."""
