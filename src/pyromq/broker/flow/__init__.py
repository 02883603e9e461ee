"""The two paths of a message: into the store and out of it."""
