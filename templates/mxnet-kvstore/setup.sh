#!/bin/sh
# Makes the virtual environment $VIRTUAL_ENV (`venv` of cluster.yaml) where it is missing, with what requirements.txt names.
# Once it is there this takes a second, and no network.
#
#   sh setup.sh 3.11 3.10       the versions of Python that will do, the best one first
set -eu

# Hosts that share their home directory may come here at the same time.
mkdir -p "$(dirname "$VIRTUAL_ENV")"
exec 9>"$VIRTUAL_ENV.lock"
if command -v flock >/dev/null; then flock 9; fi

# A python that fits: a version's own name, else what python3 is. By running it: it may be a name with nothing behind it.
find_python() {
    for version in "$@"; do
        for python in "python$version" python3; do
            if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$version" ]; then
                echo "$python"
                return
            fi
        done
    done
    echo "this needs Python $(echo "$*" | sed 's/ /, /g; s/\(.*\), /\1 or /'), and there is none in $PATH" >&2
    return 1
}

# pip is what a virtual environment gets last: one that was left half made is made to its end.
if ! "$VIRTUAL_ENV/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python "$@")
    echo "making $VIRTUAL_ENV with $("$python" --version)"
    "$python" -m venv "$VIRTUAL_ENV"
fi
"$VIRTUAL_ENV/bin/python" -m pip install --disable-pip-version-check -r requirements.txt
