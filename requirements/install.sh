#!/bin/sh
# Makes .venv and installs this checkout into it with the locked versions and the extras that are named:
#   requirements/install.sh worker          to run a farm
#   requirements/install.sh worker,test     to test it too
# PYTHON names the interpreter; without it the first of the usual names that is new enough is taken.
set -eu
cd "$(dirname "$0")/.."

extras=$1
log=.venv/install.log
torch=$(grep '^torch==' requirements/torch.txt)
cpu_index=https://download.pytorch.org/whl/cpu

say() { echo "speechmill: $1"; }

fail() {
    echo "speechmill: $1" >&2
    exit 1
}

find_python() {
    for python in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    fail "${PYTHON:-python3} is not Python 3.11 or newer: install one, or name it with make PYTHON=/path/to/python3"
}

make_venv() {
    if .venv/bin/python -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv module: install it (Debian, Ubuntu: apt install python3-venv), or name another Python with make PYTHON=…"
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv || fail "$python could not make .venv"
}

# Without --no-compile, half of the time goes into modules that nobody ever imports; Python compiles the others itself.
pip_install() {
    .venv/bin/python -m pip --disable-pip-version-check install --no-compile --constraint requirements/lock.txt "$@" \
        >$log 2>&1
}

explain() {
    if grep -q 'connection broken' $log; then
        fail "could not install $1: the package index does not answer; is there a network? All of it: $log"
    fi
    fail "could not install $1: $(grep '^ERROR' $log | tail -n 1). All of it: $log"
}

install_torch() {
    if nvidia-smi -L >/dev/null 2>&1; then
        say "installing $torch for NVIDIA GPUs (some 3 GB)"
    elif [ "$(uname -s)" = Linux ]; then
        say "installing $torch, CPU build (some 200 MB)"
        if pip_install --no-deps --retries 2 --timeout 15 --extra-index-url $cpu_index "$torch+cpu"; then
            return
        fi
        say "the CPU build is not to be had; taking the one with CUDA (some 3 GB)"
    else
        say "installing $torch"
    fi
    pip_install "$torch" || explain "$torch"
}

make_venv
install_torch
say "installing the farm and what it needs (a minute or so)"
pip_install --editable ".[$extras]" || explain "the farm"
say "installed"
