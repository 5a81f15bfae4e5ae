"""OpenAI-compatible endpoints: questions, streams, limits, retries, probes."""
