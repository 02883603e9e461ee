"""The commit log: its files, its records, its time, and what becomes of damage in it."""
