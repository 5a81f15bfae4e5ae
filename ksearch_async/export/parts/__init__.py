"""What exported modules are put together from. There, nothing of ours is imported."""
