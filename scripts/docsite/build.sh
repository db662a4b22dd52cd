#!/usr/bin/env bash
# Builds the documentation site into target/site/html and checks its links. The first time it installs
# the pinned generator into .cache/site; after that it needs no network.
set -euo pipefail
python=${1:?usage: scripts/docsite/build.sh PYTHON}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
tools=$root/.cache/site
if ! cmp -s "$here/requirements.lock" "$tools/installed.lock"; then
  rm -rf "$tools"
  "$python" -m venv "$tools"
  "$tools/bin/pip" install --quiet --no-compile --require-hashes --no-deps -r "$here/requirements.lock"
  cp "$here/requirements.lock" "$tools/installed.lock"
fi
"$python" "$here/gather.py" "$root/target/site"
"$tools/bin/zensical" build --strict --clean --config-file "$root/target/site/zensical.toml" >"$root/target/site/build.log" ||
  { cat "$root/target/site/build.log" >&2; exit 1; }
"$python" "$here/check.py" "$root/target/site/html"
echo "site: target/site/html/index.html; search works when it is served: $(basename "$python") -m http.server --directory target/site/html"
