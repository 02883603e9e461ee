"""The programs; only they deal with argv, signals and logging set-up."""
