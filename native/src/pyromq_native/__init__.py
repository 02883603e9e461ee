"""Compiled twins of PyroMQ's hottest code. Each does exactly what its interpreted twin does."""

REVISION = 32
"""Raised with every change of what a function here takes or does; PyroMQ uses only the one it knows."""
