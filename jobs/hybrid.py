"""Private k-means by a grid and a round of Lloyd: ``spark-submit jobs/hybrid.py --help``."""

import sys
from pathlib import Path

# A bare spark-submit puts only this folder on the path; where the package is neither installed
# nor shipped by --py-files, it is next door.
sys.path.append(str(Path(__file__).resolve().parent.parent))

from dpkm_spark.job.run import main

if __name__ == "__main__":
    sys.exit(main("hybrid"))
