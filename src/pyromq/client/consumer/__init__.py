"""Consumers: what a member of a group reads, hands out, and reports as done."""
