#!/usr/bin/env bash
# For maintainers: refresh requirements.lock (what a job needs) and requirements-dev.lock
# (the same plus what the tests need) from pyproject.toml. Needs uv.
#
#   conf/lock.sh              take up what changed in pyproject.toml, keep every other pin
#   conf/lock.sh --upgrade    move every pin to the newest version that fits
#
# Other arguments go to `uv pip compile` too, such as `--upgrade-package NAME`.
set -euo pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/.."

if ! command -v uv >/dev/null; then
    echo "conf/lock.sh: uv is needed to resolve the locks: pip install uv" >&2
    exit 69
fi

# pyproject.toml allows more than the locks take: one line of Spark is tested per lock, and
# pyspark 4.1 warns about pandas 3.
constraints='pyspark>=4.1,<4.2
pandas<3'

compile() {
    local out=$1
    shift
    uv pip compile pyproject.toml --quiet --output-file "$out" \
        --universal --python-version 3.10 --generate-hashes \
        --no-emit-index-url --no-annotate --custom-compile-command "conf/lock.sh" \
        --constraint <(printf '%s\n' "$constraints") "$@"
    echo "wrote $out: $(grep -c '==' "$out") pins"
}

# The larger set first: the smaller one then takes its versions from it, so that the two agree
# on every package and the test environment is the running one with more in it.
compile requirements-dev.lock --extra report --extra dev "$@"
compile requirements.lock --extra report --constraint requirements-dev.lock "$@"

if grep -nE '://|^(-i|-f|--(extra-)?index-url|--find-links)' requirements.lock requirements-dev.lock; then
    echo "conf/lock.sh: an address came into a lock; see the lines above" >&2
    exit 1
fi
