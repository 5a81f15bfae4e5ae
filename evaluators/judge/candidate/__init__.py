"""The candidate's side of a judge: its runner process, how it ends, its memory and its kernels."""
