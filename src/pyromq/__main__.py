"""`python -m pyromq` is `pyromq`."""

from pyromq.apps.pyromq import main

main()
