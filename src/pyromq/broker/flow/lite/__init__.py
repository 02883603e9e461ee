"""Lite topics: who reads them, what is handed out of them, and when it is delivered again."""
