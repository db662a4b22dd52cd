#!/usr/bin/env bash
# Runs a program of another architecture in an emulator, with the processes that it starts.
# The kernel (6.7 or later) starts the emulator, in a user namespace of its own: it is registered nowhere else.
set -euo pipefail
emulator=${1:?usage: emulate.sh EMULATOR MACHINE PROGRAM [ARGUMENT...]} machine=$2
shift 2
# MACHINE is a number of ELF: 62 is x86-64, 183 is ARM64. The mask leaves out the byte of the operating
# system (at 7), and the bit that separates programs at a fixed address from others (at 16).
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00'$(printf '\\x%02x' "$machine")'\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
# shellcheck disable=SC2016 # the inner shell reads them
exec unshare --user --map-root-user --mount bash -ec '
  mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
  printf "%s" ":emulated:M::$0:$1:$2:F" >/proc/sys/fs/binfmt_misc/register
  shift 2
  exec "$@"' "$magic" "$mask" "$emulator" "$@"
