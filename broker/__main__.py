"""`logbroker`, also as `python -m broker`."""

from nats_logship.app.signals import die_of_interrupt


def main() -> None:
    """Run logbroker."""
    die_of_interrupt()
    from broker import cli  # takes a good part of a second

    cli.main()


if __name__ == "__main__":
    main()
