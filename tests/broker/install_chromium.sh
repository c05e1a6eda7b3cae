#!/usr/bin/env bash
# Debian's Chromium and its driver, for the tests in a browser. Where they can't be had this says why, and all goes on.
set -euo pipefail

have() { command -v "$1" >/dev/null; }
without() { echo "chromium: $1; the tests in a browser will be skipped"; exit 0; }

have chromium && have chromedriver && { echo "chromium: is there"; exit 0; }
have apt-get || without "there is no apt-get to install it with"
as_root=()
if [ "$(id -u)" != 0 ]; then
    have sudo && sudo -n true 2>/dev/null || without "installing it takes root, or sudo without a password"
    as_root=(sudo -n)
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if "${as_root[@]}" timeout 300 apt-get -q update >"$log" 2>&1 &&
    "${as_root[@]}" timeout 300 apt-get -q -y install --no-install-recommends chromium chromium-driver >"$log" 2>&1; then
    echo "chromium: installed"
else
    without "apt-get could not install it: $(tail -n 1 "$log")"
fi
