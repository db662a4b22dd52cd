#!/usr/bin/env bash
# Installs OpenTelemetry for Python into target/opentelemetry, where a test finds it, once.
set -euo pipefail
python=${1:?usage: scripts/opentelemetry/install.sh PYTHON}
here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$here/../.." && pwd)/target/opentelemetry
cmp -s "$here/requirements.lock" "$tools/installed.lock" && exit 0
echo "installing OpenTelemetry for Python for the tests"
rm -rf "$tools"
mkdir -p "$(dirname "$tools")"
"$python" -m venv "$tools"
"$tools/bin/pip" install --quiet --no-compile --require-hashes --no-deps -r "$here/requirements.lock"
cp "$here/requirements.lock" "$tools/installed.lock"
