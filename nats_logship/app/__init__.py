"""What every program of the suite is made of: settings, signals, logging, readiness, files that others may own."""
