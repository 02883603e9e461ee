"""Compacted topics: of each key, a queue keeps the newest message."""
