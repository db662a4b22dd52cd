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
apt-get download "$name" >/dev/null || { apt-get update -qq && apt-get download "$name" >/dev/null; }
mkdir -p "$place"
for file in ./*.deb; do dpkg -x "$file" "$place"; done
