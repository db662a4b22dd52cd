#!/usr/bin/env bash
# Installs the packages of package-lock.json into target/node_clients, where a test finds them, once
# for each lock. The lock has the hash of each package and the address of none.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tools=$here/../../target/node_clients
cmp -s "$here/package-lock.json" "$tools/installed.lock" && exit 0
"$here/../debian.sh" npm nodejs npm
command -v npm >/dev/null || exit 0
echo "installing node_clients"
rm -rf "$tools"
mkdir -p "$tools"
cp "$here/package.json" "$here/package-lock.json" "$tools"
npm --prefix "$tools" ci --silent --no-audit --no-fund --ignore-scripts
cp "$here/package-lock.json" "$tools/installed.lock"
