"""The dashboard: serves runs to browsers, and takes orders from them. Reads the feed, and computes nothing of it."""
