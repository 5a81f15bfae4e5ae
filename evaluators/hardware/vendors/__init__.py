"""GPU vendors: facts about devices, timing, shared memory and recorded activity."""
