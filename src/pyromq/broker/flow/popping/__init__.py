"""Pop consumption: what a broker hands out, hides, and hands out again unless it is acknowledged."""
