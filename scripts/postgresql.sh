#!/usr/bin/env bash
# See that the tests find PostgreSQL's programs, to start a server of their own; install Debian's where there are none
# and we may.
set -euo pipefail

shopt -s nullglob
found=(/usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb)
if [ -n "${MXD_POSTGRESQL:-}" ] || command -v initdb >/dev/null || [ "${#found[@]}" -gt 0 ]; then
    exit 0
fi

source "$(dirname "$0")/apt.sh"
install_packages "PostgreSQL for the tests of a store in it" \
    "The tests need PostgreSQL's programs: install them, or name their folder in MXD_POSTGRESQL." postgresql
