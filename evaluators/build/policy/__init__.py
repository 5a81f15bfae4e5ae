"""What candidates may contain: operators, symbols, imports."""
