"""Which messages a subscriber wants: pure, compiled once per expression."""
