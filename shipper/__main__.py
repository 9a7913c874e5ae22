"""`python -m shipper` is `logshipper`."""

from shipper.cli import main

main()
