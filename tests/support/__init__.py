"""What tests, benches and the demo share: real programs, addresses, traffic, and the judge of what arrived."""
