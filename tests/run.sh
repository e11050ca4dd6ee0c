#!/usr/bin/env bash
# All checks: linters, types, the layering of imports, the tests on classic Spark and on Connect.
#
#   tests/run.sh                     all of them; a failed part does not stop the rest
#   tests/run.sh PYTEST-ARGUMENTS    only these tests, on classic Spark: tests/run.sh -m slow
#
# The exit code is 0 if all parts passed, else 1; with arguments it is pytest's own.
set -uo pipefail

root=$(cd "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=conf/environment.sh
source "$root/conf/environment.sh"
cd "$root" || exit 69

dpkm_venv requirements-dev.lock dev || exit
dpkm_java quiet || exit
dpkm_quiet_log
# The tests are about the locked Spark, on this machine, whatever the user works with otherwise.
unset SPARK_HOME SPARK_CONF_DIR SPARK_REMOTE MASTER PYSPARK_SUBMIT_ARGS DPKM_TEST_MODE
export PYSPARK_PYTHON=$DPKM_VENV/bin/python PYSPARK_DRIVER_PYTHON=$DPKM_VENV/bin/python
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
bin=$DPKM_VENV/bin

if (($#)); then
    exec "$bin/python" -m pytest "$@"
fi

failed=()
passed=0
part() { # NAME COMMAND...
    local name=$1 start=$SECONDS code
    shift
    printf '\n=== %s\n' "$name"
    "$@"
    code=$?
    if ((code == 0)); then
        passed=$((passed + 1))
        printf -- '--- %s: passed in %d s\n' "$name" $((SECONDS - start))
    else
        failed+=("$name")
        printf -- '--- %s: FAILED with code %d after %d s\n' "$name" "$code" $((SECONDS - start))
        # Ctrl-C means all of it.
        ((code != 130)) || exit 130
    fi
}

part "ruff check" "$bin/python" -m ruff check .
part "ruff format" "$bin/python" -m ruff format --check .
part "mypy" "$bin/python" -m mypy
part "import-linter" "$bin/python" -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'
part "pytest, classic Spark" "$bin/python" -m pytest
part "pytest, Spark Connect" env DPKM_TEST_MODE=connect \
    "$bin/python" -m pytest -m "spark and not slow and not cluster and not service"

printf '\n=== %d of %d parts passed\n' "$passed" $((passed + ${#failed[@]}))
if ((${#failed[@]})); then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
