"""Building and judging on a machine that is reached only by calls, such as Modal's, without a common server."""
