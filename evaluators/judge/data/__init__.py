"""The data of calls: input distributions, and the memory in which inputs and outputs lie."""
