"""The web console: one poller per cluster, and pages that show its last snapshot."""
