"""`python -m curvae`."""

from .cli import main

main()
