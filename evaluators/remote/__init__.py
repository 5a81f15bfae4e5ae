"""Building and judging on a machine that is reached by calls alone, as Modal's are: no server that both sides join."""
