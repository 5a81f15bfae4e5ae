"""Devices and their bounds: facts for models that plan and write, and rooflines. Does not import torch."""
