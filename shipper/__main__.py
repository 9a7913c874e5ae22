"""`logshipper`, also as `python -m shipper`."""

from nats_logship.app.signals import die_of_interrupt


def main() -> None:
    """Run logshipper."""
    die_of_interrupt()
    from shipper import cli  # takes a good part of a second

    cli.main()


if __name__ == "__main__":
    main()
