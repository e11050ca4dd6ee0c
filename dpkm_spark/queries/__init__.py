"""Exact integer aggregates: one protocol, two engines."""
