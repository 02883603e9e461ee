"""The consume queues: their files and units, and the mending of damaged units from the log."""
