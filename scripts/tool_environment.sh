#!/usr/bin/env bash
# Installs the Python packages of scripts/NAME/requirements.lock into target/NAME, an environment of
# its own where a test finds it, once for each lock.
set -euo pipefail
python=${1:?usage: scripts/tool_environment.sh PYTHON NAME}
name=${2:?usage: scripts/tool_environment.sh PYTHON NAME}
root=$(cd "$(dirname "$0")/.." && pwd)
lock=$root/scripts/$name/requirements.lock tools=$root/target/$name
cmp -s "$lock" "$tools/installed.lock" && exit 0
echo "installing $name"
rm -rf "$tools"
mkdir -p "$(dirname "$tools")"
"$python" -m venv "$tools"
"$tools/bin/pip" install --quiet --no-compile --require-hashes --no-deps -r "$lock"
cp "$lock" "$tools/installed.lock"
