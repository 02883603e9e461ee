"""The JSON bodies of the protocol and of the broker's tables: declarations only, grouped by noun."""
