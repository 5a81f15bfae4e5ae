"""GPU vendors: what a device is, and the floor of a kernel's time on it."""
