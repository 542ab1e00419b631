"""`python -m curvae`."""

from .cli.commands import main

main()
