#!/usr/bin/env bash
# See that the browser tests find a Chromium or Chrome; install Debian's where there is none and we may.
set -euo pipefail

if [ -n "${MXD_CHROMIUM:-}" ] || command -v chromium chromium-browser google-chrome >/dev/null; then
    exit 0
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    sudo=(sudo --non-interactive)
fi

if command -v apt-get >/dev/null && "${sudo[@]}" true 2>/dev/null; then
    echo "Installing Chromium for the browser tests"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null
else
    echo "The browser tests need Chromium or Chrome: install one, or name its executable in MXD_CHROMIUM." >&2
    exit 1
fi
