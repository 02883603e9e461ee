"""The message store: files and mmap, no sockets and no event loop."""
