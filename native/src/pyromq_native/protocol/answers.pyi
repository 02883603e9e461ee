"""For the other compiled modules alone: nothing here is seen from Python."""
