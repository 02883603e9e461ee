"""Tables: all that the broker knows besides messages."""
