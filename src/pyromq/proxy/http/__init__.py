"""Sessions and messages over HTTP, on the port of the gRPC front."""
