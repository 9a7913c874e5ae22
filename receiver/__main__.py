"""`python -m receiver` is `logreceiver`."""

from receiver.cli import main

if __name__ == "__main__":
    main()
