#!/bin/sh
# Make ready to run: Java 17 or newer, and .venv with exactly what requirements.lock names.
#
# A stamp in .venv records what it was made from, so a second run only looks. As root on Debian or
# Ubuntu missing system packages are installed; otherwise the script says which command does it.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$1" >&2
    shift
    for line in "$@"; do printf '  %s\n' "$line" >&2; done
    exit 1
}

may_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }

refreshed=no
refresh_packages() {
    [ "$refreshed" = yes ] || apt-get -qq update >&2 || fail "apt-get update failed (see above)"
    refreshed=yes
}

# The first of the named packages that this release has.
available_package() {
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            printf '%s' "$package"
            return
        fi
    done
}

install_package() {
    log=$(DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$1" 2>&1) || {
        printf '%s\n' "$log" >&2
        fail "apt-get install $1 failed (see above)"
    }
}

# Major version of the Java that Spark would start; nothing where there is none.
java_version() {
    if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java"; else java=java; fi
    command -v "$java" >/dev/null 2>&1 || return 0
    "$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

need_java() {
    version=$(java_version)
    [ "${version:-0}" -lt 17 ] || return 0
    [ -z "${JAVA_HOME:-}" ] || fail \
        "JAVA_HOME is $JAVA_HOME, which holds Java ${version:-"of no known version"}; Spark needs 17 or newer" \
        "point JAVA_HOME to a newer Java, or unset it"
    may_install || fail "no Java 17 or newer found${version:+ (java on the PATH is version $version)}" \
        "on Debian or Ubuntu: sudo apt-get install openjdk-17-jre-headless" \
        "  (where the release has no version 17: sudo apt-get install default-jre-headless)" \
        "elsewhere: install Java 17 or newer and set JAVA_HOME"
    refresh_packages
    package=$(available_package openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless)
    [ -n "$package" ] || fail "no Java package in this release" "install Java 17 or newer and set JAVA_HOME"
    say "java: installing $package"
    install_package "$package"
    version=$(java_version)
    [ "${version:-0}" -ge 17 ] || fail \
        "java on the PATH is version ${version:-unknown}, after installing $package" \
        "set JAVA_HOME to the newer one under /usr/lib/jvm"
}

is_new_enough() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

need_python() {
    for python in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if is_new_enough "$python"; then return; fi
        [ -z "${PYTHON:-}" ] || break
    done
    fail "no Python 3.11 or newer found" "install one, or name it: make setup PYTHON=/path/to/python3"
}

# Debian's python3 comes without the part of venv that brings pip.
need_venv() {
    if "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then return; fi
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    may_install || fail "$python has no venv module" "on Debian or Ubuntu: sudo apt-get install $package"
    refresh_packages
    package=$(available_package "$package" python3-venv)
    [ -n "$package" ] || fail "no package with Python's venv module in this release"
    say "python: installing $package"
    install_package "$package"
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
        fail "$python has no venv module even after installing $package" \
            "name a Python that has it: make setup PYTHON=/usr/bin/python3"
}

# Where and by which Python the environment is made: a change of these needs a new one.
place() { "$python" -c 'import os, sys; print(sys.version.split()[0], os.getcwd())'; }

contents() {
    "$python" -c 'import hashlib, sys
print(hashlib.sha256(b"".join(open(f, "rb").read() for f in sys.argv[1:])).hexdigest())' \
        requirements.lock pyproject.toml scripts/setup.sh
}

recorded() { cat ".venv/.made-$1" 2>/dev/null || true; }

locked_pip() {
    .venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps "$@"
}

# The lines of the lock that pin one package, with their hashes.
pin_of() {
    awk -v name="$1==" '/^[^ ]/ {on = index($0, name) == 1} on' requirements.lock
}

need_environment() {
    place=$(place) contents=$(contents)
    if [ "$(recorded contents)" = "$contents" ] && [ "$(recorded place)" = "$place" ]; then return; fi

    if [ "$(recorded place)" != "$place" ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        need_venv
        "$python" -m venv --clear .venv
    fi
    rm -f .venv/.made-contents
    say "python environment: installing $(grep -c '^[^ ]' requirements.lock) locked packages, minutes the first time"
    # Spark comes as source: its build takes the locked setuptools, which so has to be there first.
    pin_of setuptools >.venv/build-tools.lock
    locked_pip --require-hashes -r .venv/build-tools.lock
    locked_pip --require-hashes --no-build-isolation -r requirements.lock
    locked_pip --no-build-isolation --editable .
    .venv/bin/penstock warm-up || say "without it, starts take longer; all else is the same"
    say "$place" >.venv/.made-place
    say "$contents" >.venv/.made-contents
    say "python environment: done"
}

need_java
need_python
need_environment
say "ready: java $version, python $("$python" -c 'import platform; print(platform.python_version())')"
