#!/usr/bin/env bash
# See that the browser tests find a Chromium or Chrome; install Debian's where there is none and we may.
set -euo pipefail

if [ -n "${MXD_CHROMIUM:-}" ] || command -v chromium chromium-browser google-chrome >/dev/null; then
    exit 0
fi

source "$(dirname "$0")/apt.sh"
install_packages "Chromium for the browser tests" \
    "The browser tests need Chromium or Chrome: install one, or name its executable in MXD_CHROMIUM." chromium
