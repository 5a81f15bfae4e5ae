"""A run: its folder, its state folded from the journal, starting, resuming, orders and replay."""
