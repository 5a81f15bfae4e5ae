"""The data of calls: input distributions, and the memory of inputs and outputs."""
