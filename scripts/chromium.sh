#!/usr/bin/env bash
# Installs Debian's Chromium for the tests of the report, when it is missing and we may.
set -euo pipefail
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "chromium: not installed, and this is not root on Debian; wanted chromium for the report's tests; hint: apt-get install chromium" >&2
  [ "${CI:-}" = true ] && exit 1
  exit 0
fi
echo "installing chromium for the tests of the report"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
