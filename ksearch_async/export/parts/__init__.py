"""Parts of exported modules. There, nothing of ours is imported."""
