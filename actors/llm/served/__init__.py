"""A model served as an OpenAI-compatible endpoint on this host, which counts questions and fails on demand."""
