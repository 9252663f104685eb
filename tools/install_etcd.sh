#!/usr/bin/env bash
# Install Debian's etcd-server if this machine can, else say which tests will be skipped. Never fails the caller.
set -u
if command -v etcd >/dev/null; then
    exit 0
fi
skipped="etcd is missing: the tests marked 'etcd' (the store on etcd, failover of coordinators) will be skipped."
if ! command -v apt-get >/dev/null; then
    echo "$skipped Put an etcd 3.4 or newer on the PATH to run them." >&2
elif [ "$(id -u)" != 0 ]; then
    echo "$skipped To run them: sudo apt-get install etcd-server" >&2
else
    echo "installing etcd-server for the tests (they start their own; its system service is not needed)" >&2
    export DEBIAN_FRONTEND=noninteractive
    install=(apt-get install -y -q --no-install-recommends etcd-server)
    if ! "${install[@]}" >/dev/null 2>&1 && ! { apt-get update -q && "${install[@]}"; } >&2; then
        echo "$skipped apt-get could not install etcd-server (its words are above)." >&2
    fi
fi
exit 0
