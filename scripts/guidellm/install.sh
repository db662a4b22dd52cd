#!/usr/bin/env bash
# Installs the mock server of guidellm into target/guidellm, where a test finds it: 240 MB, once.
set -euo pipefail
python=${1:?usage: scripts/guidellm/install.sh PYTHON}
here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$here/../.." && pwd)/target/guidellm
cmp -s "$here/requirements.lock" "$tools/installed.lock" && exit 0
echo "installing the mock server of guidellm for the tests"
rm -rf "$tools"
mkdir -p "$(dirname "$tools")"
"$python" -m venv "$tools"
"$tools/bin/pip" install --quiet --no-compile --require-hashes --no-deps -r "$here/requirements.lock"
cp "$here/requirements.lock" "$tools/installed.lock"
