#!/usr/bin/env bash
# Unpacks a Debian package and what it needs beyond the base system into .cache/packages/NAME.
set -euo pipefail
name=${1:?usage: scripts/package.sh NAME}
root=$(cd "$(dirname "$0")/.." && pwd)
place="$root/.cache/packages/$name"
[ -d "$place/usr" ] && exit 0
command -v apt-get >/dev/null || {
  echo "$name: not installed, and this is not Debian; wanted $name; hint: install it by hand" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# What would be installed with it, from lines of 'URI' NAME_VERSION_ARCHITECTURE.deb; asking needs no root.
fetch() {
  mapfile -t needed < <(
    apt-get install --print-uris -qq --no-install-recommends -o Debug::NoLocking=1 "$name" |
      sed -nE "s/^'[^']*' ([^_ ]+)_[^ ]+\.deb .*/\1/p" | grep -vFx "$name"
  )
  apt-get download "$name" "${needed[@]}" >/dev/null
}
fetch || { apt-get update -qq && fetch; }
unpacked="$work/unpacked"
for file in ./*.deb; do dpkg -x "$file" "$unpacked"; done
mkdir -p "$(dirname "$place")"
rm -rf "$place"
mv "$unpacked" "$place"
