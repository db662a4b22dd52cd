#!/usr/bin/env bash
# Loads an image into podman and runs it once, inside `unshare --mount --net`. Podman and its parts are
# unpacked from Debian's packages and not installed: apt-get would also replace login and passwd.
set -euo pipefail
root=${1:?usage: podman.sh REPOSITORY IMAGE VOLUME WORD...}
image=$2 volume=$3
shift 3
"$root/scripts/package.sh" podman >&2
tools=$root/.cache/packages/podman
work=$(mktemp -d)
trap 'umount -l "$work/state" 2>/dev/null || true; rm -rf "$work"' EXIT

# Everything that podman writes is gone with the namespace.
mount --make-rprivate /
ip link set lo up
# crun accepts control groups of version 1 or of version 2, and not both at once.
umount /sys/fs/cgroup/unified 2>/dev/null || true
mount -t tmpfs tmpfs /run
mkdir -p /run/upper /run/work "$work/state"
mount -t tmpfs tmpfs "$work/state"
mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/upper,workdir=/run/work /etc
mkdir -p /etc/containers
echo '{"default":[{"type":"insecureAcceptAnything"}]}' >/etc/containers/policy.json

# conmon starts the runtime with an empty environment, so a wrapper names its libraries.
libraries=$(dirname "$(find "$tools" -name 'libyajl.so.2' | head -1)")
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$libraries" "$tools/usr/bin/crun" >"$work/crun"
chmod +x "$work/crun"
cat >"$work/containers.conf" <<END
[engine]
runtime = "crun"
conmon_path = ["$tools/usr/bin/conmon"]
helper_binaries_dir = ["$tools/usr/libexec/podman", "$tools/usr/lib/podman", "$tools/usr/bin"]
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
crun = ["$work/crun"]
END
export CONTAINERS_CONF=$work/containers.conf LD_LIBRARY_PATH=$libraries
podman() {
  "$tools/usr/bin/podman" --root "$work/state/storage" --runroot /run/podman \
    --storage-driver vfs --cgroup-manager cgroupfs "$@"
}
podman load --quiet --input "$image" >&2
name=$(podman images --format '{{.Repository}}:{{.Tag}}' | head -1)
code=0
# The limits are those of this process, which may be below podman's own.
podman run --rm --network host --cgroups disabled --user 0 --volume "$volume:/data" \
  --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 "$name" "$@" || code=$?
exit "$code"
