"""Messages: structs, subjects and the codec. Imports msgspec and nothing else."""
