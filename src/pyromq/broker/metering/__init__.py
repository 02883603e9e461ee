"""The metrics of a broker for Prometheus, under Apache's names and labels, one file for each subject."""
