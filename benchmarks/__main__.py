"""Run all measurements, or those named: ``python -m benchmarks [NAME ...]``; see `ALL`."""

from __future__ import annotations

import sys

from benchmarks import histogram, job, lloyd, memory, methods, utility

ALL = {
    "histogram": histogram,
    "lloyd": lloyd,
    "methods": methods,
    "job": job,
    "memory": memory,
    "utility": utility,
}


def main() -> int:
    """Run the named measurements, or all."""
    names = sys.argv[1:] or list(ALL)
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"unknown measurement {unknown[0]!r}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    for name in names:
        ALL[name].main()
    return 0


sys.exit(main())
