"""`python -m broker` is `logbroker`."""

from broker.cli import main

__all__: list[str] = []

main()
