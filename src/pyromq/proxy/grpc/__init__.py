"""gRPC on the server's side, over HTTP/2."""
