"""Measurements behind every claim of speed and of utility: ``python -m benchmarks``."""
