"""Building candidates: compilers under a guard, the artifact store, and artifacts for other hosts."""
