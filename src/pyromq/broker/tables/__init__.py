"""What the broker knows."""
