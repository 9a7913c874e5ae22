"""The parts of a program that have nothing to do with NATS: settings, signals, files, pages."""
