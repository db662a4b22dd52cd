#!/usr/bin/env bash
# Installs Debian packages that tests need, when their command or library is missing and we may.
set -euo pipefail
command=${1:?usage: scripts/debian.sh COMMAND PACKAGE...}
shift
case $command in
lib*) ldconfig -p | grep -q "$command" && exit 0 ;;
*) command -v "$command" >/dev/null && exit 0 ;;
esac
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "$command: not installed, and this is not root on Debian; wanted $command for the tests; hint: apt-get install $*" >&2
  [ "${CI:-}" = true ] && exit 1
  exit 0
fi
echo "installing $command for the tests"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
