"""For Django: messages that are sent if, and only if, the database commits. Add it to INSTALLED_APPS."""
