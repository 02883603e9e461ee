"""Programs: the only place that knows of argv, signals and logging set-up."""
