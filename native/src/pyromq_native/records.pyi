# Nothing here is for Python; what other compiled modules use is in records.pxd.
