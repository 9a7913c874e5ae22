"""What tests, benches and the demo share.

Real programs, addresses, traffic, and the judge of what arrived.
"""
