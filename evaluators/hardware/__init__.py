"""What devices are, and what they bound: facts for models that plan and write, and rooflines. Knows no torch."""
