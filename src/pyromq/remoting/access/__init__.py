"""Access control of a server: its settings, its rules in files, and the admission that applies them."""
