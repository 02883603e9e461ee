"""One noun or activity each, strangers to each other."""
