"""The evaluator as a product: settings, judging without a search, tasks and sources."""
