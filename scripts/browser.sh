#!/usr/bin/env bash
# Check that the browser tests find a Chromium or Chrome. If not, install Debian's: the headless shell, which needs half the
# CPU time, or the whole browser on systems without that package.
set -euo pipefail

if [ -n "${MXD_CHROMIUM:-}" ] || command -v chromium-headless-shell chromium chromium-browser google-chrome >/dev/null; then
    exit 0
fi

source "$(dirname "$0")/apt.sh"
install() {
    install_packages "Chromium for the browser tests" \
        "The browser tests need Chromium or Chrome: install one, or name its executable in MXD_CHROMIUM." "$1"
}
install chromium-headless-shell 2>/dev/null || install chromium
