"""The lake tier: closed files of the log in an object store, and reading them from there."""
