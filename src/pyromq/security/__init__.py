"""Who is asking, and may they: signatures and policies."""
