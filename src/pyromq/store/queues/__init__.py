"""The consume queues: their files and units, and how damaged ones are made again from the log."""
