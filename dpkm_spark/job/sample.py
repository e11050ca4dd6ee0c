"""The embedded sample: 5,000 points around 15 centres, in the manner of the S1 benchmark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dpkm_spark.kmeans.starts import sphere_packed_starts

ROWS = 5_000
CLUSTERS = 15
COLUMNS = ("x", "y")
BOUNDS = (-1.0, 1.0)
_SPREAD = 0.07


def sample_table() -> pa.Table:
    """Generate the sample, the same every time.

    Returns
    -------
    pyarrow.Table
        Columns ``x`` and ``y`` of double, 5,000 rows.
    """
    random = np.random.default_rng(20_161)
    centres = sphere_packed_starts(1, CLUSTERS, 2, random)[0]
    labels = random.integers(0, CLUSTERS, size=ROWS)
    points = centres[labels] + random.normal(0.0, _SPREAD, size=(ROWS, 2))
    return pa.table({name: pa.array(points[:, i]) for i, name in enumerate(COLUMNS)})
