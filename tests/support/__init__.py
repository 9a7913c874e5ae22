"""What tests, benchmarks and the demo share: programs, addresses, traffic, and the judge."""
