"""The commit log: its files, its records, its time, and damage in it."""
