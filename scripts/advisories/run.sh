#!/usr/bin/env bash
# Installs the pinned tools into .cache/advisories and runs check.py with them. Tools that cannot be
# had leave everything unchecked, which check.py reports.
set -euo pipefail
python=${1:?usage: scripts/advisories/run.sh PYTHON}
here=$(cd "$(dirname "$0")" && pwd)
place=$(cd "$here/../.." && pwd)/.cache/advisories
if ! cmp -s "$here/requirements.lock" "$place/installed.lock"; then
  rm -rf "$place"
  "$python" -m venv "$place"
  if "$place/bin/pip" install --quiet --no-compile --require-hashes --no-deps -r "$here/requirements.lock"; then
    cp "$here/requirements.lock" "$place/installed.lock"
  fi
fi
exec "$python" "$here/check.py" --tools "$place/bin"
