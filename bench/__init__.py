"""What measures and demonstrates: oracle, generators, the demo and the benchmarks."""
