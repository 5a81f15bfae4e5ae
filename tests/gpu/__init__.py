"""What benches and tests on a GPU share."""
