"""HTTP/2 on the server's side, as gRPC needs it: bytes in, events out."""
