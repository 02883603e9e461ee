"""One page, one file: a function that asks `admin` or the snapshot and returns what the template shows."""
