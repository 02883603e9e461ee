"""Handlers: how messages reach them, and what happens to messages that fail."""
