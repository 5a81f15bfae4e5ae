"""The candidate's side of a judge: its runner process, and what its end, memory and kernels tell."""
