"""Signatures and policies: the identity of a caller, and what it may do."""
