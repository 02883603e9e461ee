"""Producers and consumers, for our brokers and for Apache's."""
