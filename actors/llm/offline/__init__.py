"""The embedded default when no key is set: built-in rules that answer real prompts. Not a language model."""
