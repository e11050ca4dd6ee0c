#!/usr/bin/env bash
# Run a job of this project by spark-submit, with all that it needs set up on the first call.
# Everything after the job's file goes to the job; everything before it goes to spark-submit.
set -euo pipefail

root=$(cd "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=conf/environment.sh
source "$root/conf/environment.sh"

usage() {
    cat <<'USAGE'
Usage: ./spark-submit.sh [spark-submit options] jobs/JOB.py [job options]

  ./spark-submit.sh jobs/eugkm.py --help
  ./spark-submit.sh jobs/eugkm.py --input table.parquet --k 5 --epsilon 1 ...
  ./spark-submit.sh --master spark://host:7077 --executor-memory 4g jobs/eugkm.py ...
  ./spark-submit.sh --remote sc://host:15002 jobs/eugkm.py ...       (Spark Connect: no Java here)

The first run sets up Python packages in .venv, and Java if there is none; later ones start at once.
Without --master the job runs on this machine, with conf/spark-defaults.conf.

A cluster's own Spark is used where SPARK_HOME names it, and its configuration where SPARK_CONF_DIR
or --properties-file names one. PYTHON names the Python to build .venv from, JAVA_HOME the Java.
DPKM_SPARK_LOG=warn or =info shows more of Spark's log.
USAGE
}

die() {
    printf 'spark-submit.sh: %s\n' "$1" >&2
    exit "${2:-2}"
}

# ------------------------------------------------------------------ what was asked for

options=()                # for spark-submit, in the user's order
job=""                    # the job's file; none for --version, --status, --kill
py_files=""               # the user's own --py-files
master=""                 # empty: this machine
remote=${SPARK_REMOTE:-}  # Spark Connect
deploy_mode=client
own_properties=no

note() { # NAME VALUE: what an option means to this script
    case $1 in
        --master | spark.master) master=$2 ;;
        --deploy-mode | spark.submit.deployMode) deploy_mode=$2 ;;
        --properties-file) own_properties=yes ;;
        --conf | -c) [[ $2 != *=* ]] || note "${2%%=*}" "${2#*=}" ;;
    esac
}

# Take --py-files out of the options, to be merged with the package's zip, and --remote, which this
# script hands on by the environment.
option() { # NAME VALUE ARGUMENT...: an option as it came, in one argument or two
    case "$1 $2" in
        "--py-files "*) py_files=${py_files:+$py_files,}$2 ;;
        "--conf spark.submit.pyFiles="*) py_files=${py_files:+$py_files,}${2#*=} ;;
        "--remote "* | "--conf spark.remote="*) remote=${2#spark.remote=} ;;
        *)
            note "$1" "$2"
            options+=("${@:3}")
            ;;
    esac
}

if (($# == 0)); then
    usage >&2
    exit 2
fi
while (($#)); do
    case $1 in
        -h | --help)
            usage
            exit 0
            ;;
        -v | --verbose | --version | --supervise | --usage-error | --load-spark-defaults)
            options+=("$1")
            shift
            ;;
        --*=*)
            option "${1%%=*}" "${1#*=}" "$1"
            shift
            ;;
        -*)
            (($# > 1)) || die "$1 needs a value (./spark-submit.sh --help)"
            option "$1" "$2" "$1" "$2"
            shift 2
            ;;
        *)
            job=$1
            shift
            break
            ;;
    esac
done
master=${master:-${MASTER:-}} # spark-submit reads that variable too

case $job in
    *://* | local:* | hdfs:* | file:* | spark-internal) ;; # for spark-submit to find
    /* | "") [[ -z $job || -f $job ]] || die "there is no job $job" ;;
    *)
        if [[ -f $job ]]; then
            job=$PWD/$job
        elif [[ -f $root/$job ]]; then
            job=$root/$job
        else
            die "there is no job $job, neither here nor in the project's folder"
        fi
        ;;
esac

# ------------------------------------------------------------------ Python

dpkm_venv requirements.lock run
python=$DPKM_VENV/bin/python
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}

# The commit, for reports; a change that is not committed shows as -dirty.
commit() {
    export GIT_OPTIONAL_LOCKS=0
    local id dirty
    # Nothing where the folder is no checkout of its own, even if a folder above it is one.
    [[ -z $(git -C "$root" rev-parse --show-prefix) ]] || return 0
    id=$(git -C "$root" rev-parse --short HEAD) || return 0
    dirty=$(git -C "$root" status --porcelain --untracked-files=no &&
        git -C "$root" ls-files --others --exclude-standard -- dpkm_spark jobs) || return 0
    printf '%s%s' "$id" "${dirty:+-dirty}"
}
commit=$(commit 2>/dev/null) || true
[[ -z $commit ]] || export DPKM_COMMIT=$commit

# Questions that need no Spark are answered without it.
if [[ $job == *.py && $job == /* ]]; then
    for argument; do
        case $argument in
            -h | --help | --version | --dry-run) exec "$python" "$job" "$@" ;;
        esac
    done
fi

# ------------------------------------------------------------------ Spark

with_java() { # Have Java, unless the work is done by a Spark Connect server
    [[ $remote == sc://* ]] && return
    id -un >/dev/null 2>&1 ||
        die "Spark needs a user name, and user id $(id -u) has none (no line in /etc/passwd)" 69
    dpkm_java "$@"
}

here=no # the work is done on this machine
[[ -z $remote && ($master == "" || $master == local || $master == local[[-]*) ]] && here=yes

if [[ -n ${SPARK_HOME:-} ]]; then
    [[ -x $SPARK_HOME/bin/spark-submit ]] ||
        die "SPARK_HOME=$SPARK_HOME has no bin/spark-submit; without SPARK_HOME the project's own Spark is used" 69
    with_java
    theirs=$(echo "$SPARK_HOME"/jars/spark-core_*.jar)
    theirs=${theirs##*/spark-core_*-}
    ours=$(echo "$(dpkm_pyspark)"/jars/spark-core_*.jar)
    ours=${ours##*/spark-core_*-}
    [[ $theirs == "${ours%.*.jar}".* || $theirs == *\** ]] ||
        printf 'spark-submit.sh: warning: SPARK_HOME has Spark %s; this project is tested with %s\n' \
            "${theirs%.jar}" "${ours%.jar}" >&2
    configuration=${SPARK_CONF_DIR:-$SPARK_HOME/conf}
else
    SPARK_HOME=$(dpkm_pyspark) || die "there is no pyspark in .venv; remove .venv and start again" 69
    export SPARK_HOME
    with_java quiet
    configuration=${SPARK_CONF_DIR:-}
    if [[ $here == yes && -z $configuration ]]; then
        [[ $own_properties == yes ]] ||
            options=(--properties-file "$root/conf/spark-defaults.conf" ${options[@]+"${options[@]}"})
        # Containers often have a host name that does not resolve.
        export SPARK_LOCAL_IP=${SPARK_LOCAL_IP:-127.0.0.1}
    fi
fi

# The package, for drivers and executors elsewhere, in a zip named by its content: jobs that run at
# the same time share it, and none finds it changed. Prints the zip's path; then, on a line of its
# own, the options with the zip among them as PYSPARK_SUBMIT_ARGS wants them.
package() { # FOLDER
    "$python" - "$root" "$1" "$commit" "$py_files" ${options[@]+"${options[@]}"} <<'PYTHON'
import hashlib, io, os, shlex, sys, time, zipfile
from pathlib import Path

root, folder, commit, py_files, *options = sys.argv[1:]
root, folder = Path(root), Path(folder)
files = {
    path.relative_to(root).as_posix(): path.read_bytes()
    for path in (root / "dpkm_spark").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
}
if commit:
    files["dpkm_spark/_commit.txt"] = f"{commit}\n".encode()
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
    for name in sorted(files):
        entry = zipfile.ZipInfo(name)  # dated 1980: the same files make the same zip
        entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
        archive.writestr(entry, files[name])
content = buffer.getvalue()
folder.mkdir(parents=True, exist_ok=True)
target = folder / f"dpkm_spark-{hashlib.sha256(content).hexdigest()[:16]}.zip"
if target.exists():
    os.utime(target)
else:
    part = folder / f"{os.getpid()}.part"
    part.write_bytes(content)
    part.replace(target)
for old in folder.iterdir():  # what no running job can still want
    if old.stat().st_mtime < time.time() - 30 * 86400:
        old.unlink(missing_ok=True)
py_files = ",".join(filter(None, [str(target), py_files]))
print(py_files)
print(shlex.join([*options, "--py-files", py_files, "pyspark-shell"]))
PYTHON
}
if [[ $job == *.py ]]; then
    lines=$(package "$DPKM_VENV/dpkm-package" 2>/dev/null) || # .venv may be someone else's
        lines=$(package "$(mktemp -d)")
    py_files=${lines%%$'\n'*}
fi

# In client mode the driver is this process, and Python starts Spark as its child, as the pyspark
# shell does; bin/spark-submit would start Python as a child of Spark. The options mean the same. But
# spark-submit leaves the Python driver running when it is told to stop (SIGTERM), and it sends the
# driver's stderr to stdout.
if [[ $deploy_mode != cluster && $job == /*.py ]]; then
    # The logging of a site rules where there is one.
    compgen -G "$configuration/log4j2.*" >/dev/null || dpkm_quiet_log
    # Executors on a cluster keep the user's setting: the jobs' default path needs no Python there.
    [[ $here == no ]] || export PYSPARK_PYTHON=$python
    export PYSPARK_DRIVER_PYTHON=$python PYSPARK_SUBMIT_ARGS=${lines#*$'\n'} PYTHONHASHSEED=0
    [[ -z $remote ]] || export SPARK_REMOTE=$remote
    for archive in "$SPARK_HOME"/python/lib/{py4j-*-src,pyspark}.zip; do
        PYTHONPATH=$archive:$PYTHONPATH
    done
    exec "$python" "$job" "$@"
fi

# A second attempt of the driver would draw anew and so spend the budget again.
[[ $deploy_mode != cluster ]] ||
    options=(--conf spark.yarn.maxAppAttempts=1 ${options[@]+"${options[@]}"})
[[ -z $py_files ]] || options+=(--py-files "$py_files")
[[ -z $remote ]] || options+=(--remote "$remote")
exec "$SPARK_HOME/bin/spark-submit" ${options[@]+"${options[@]}"} ${job:+"$job"} "$@"
