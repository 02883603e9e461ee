"""The two roads of a message: into the store and out of it."""
