"""Settings: declared once, read from files, environment and command line, checked before anything starts."""
