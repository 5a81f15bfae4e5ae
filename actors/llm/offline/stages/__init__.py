"""Programs of several stages over tensors in memory: how they are read, and what they are (`ir.py`)."""
