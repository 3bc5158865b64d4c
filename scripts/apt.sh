# To be sourced: installs Debian packages where we may.

# install_packages PURPOSE ADVICE PACKAGE…
install_packages() {
    local purpose=$1 advice=$2 sudo=()
    shift 2
    if [ "$(id -u)" -ne 0 ]; then
        sudo=(sudo --non-interactive)
    fi
    if ! command -v apt-get >/dev/null || ! "${sudo[@]}" true 2>/dev/null; then
        echo "$advice" >&2
        return 1
    fi
    echo "Installing $purpose"
    "${sudo[@]}" apt-get update -qq
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}
