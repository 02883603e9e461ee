"""The commands of `pyromq`: one file per noun, imported only when its command runs."""
