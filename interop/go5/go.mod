module pyromq/interop/go5

go 1.23
