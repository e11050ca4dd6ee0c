"""Everything that touches Spark but the aggregates: frames, sessions, reading, writing."""
