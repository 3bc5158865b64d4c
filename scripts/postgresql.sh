#!/usr/bin/env bash
# See that the tests find PostgreSQL's programs, to start a server of their own; install Debian's where there are none
# and we may.
set -euo pipefail

shopt -s nullglob
found=(/usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb)
if [ -n "${MXD_POSTGRESQL:-}" ] || command -v initdb >/dev/null || [ "${#found[@]}" -gt 0 ]; then
    exit 0
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
    sudo=(sudo --non-interactive)
fi

if command -v apt-get >/dev/null && "${sudo[@]}" true 2>/dev/null; then
    echo "Installing PostgreSQL for the tests of a store in it"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql >/dev/null
else
    echo "The tests need PostgreSQL's programs: install them, or name their folder in MXD_POSTGRESQL." >&2
    exit 1
fi
