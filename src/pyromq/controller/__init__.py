"""The controller decides which broker of a group is its master."""
