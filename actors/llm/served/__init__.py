"""A model served as an OpenAI-compatible endpoint on this host, which counts what it is asked and fails as told."""
