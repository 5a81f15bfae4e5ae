"""What is known of the makers of devices, one package each."""
