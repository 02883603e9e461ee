"""Messages on their way through handlers: done, tried again, or given up."""
