#!/usr/bin/env bash
# Loads an image into podman, inside `unshare --mount --net`, and runs it once. With `--pod FILE` before
# the words it starts the Pod of a manifest instead, runs the words on this host, and stops the Pod; the
# words find `podman` on their path. Podman and its parts are unpacked from Debian's packages and not
# installed: apt-get would also replace login and passwd.
set -euo pipefail
root=${1:?usage: podman.sh REPOSITORY IMAGE VOLUME [--pod FILE] WORD...}
image=$2 volume=$3 pod=
shift 3
if [ "${1:-}" = --pod ]; then
  pod=${2:?usage: --pod FILE}
  shift 2
fi
"$root/scripts/package.sh" podman >&2
# The process that holds a Pod's namespaces.
"$root/scripts/package.sh" catatonit >&2
tools=$root/.cache/packages/podman pause=$root/.cache/packages/catatonit/usr/bin
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
# The limits are those of this process, which may be below podman's own.
cat >"$work/containers.conf" <<END
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
netns = "host"
[engine]
runtime = "crun"
conmon_path = ["$tools/usr/bin/conmon"]
helper_binaries_dir = ["$pause", "$tools/usr/libexec/podman", "$tools/usr/lib/podman", "$tools/usr/bin"]
cgroup_manager = "cgroupfs"
events_logger = "file"
[engine.runtimes]
crun = ["$work/crun"]
END
export CONTAINERS_CONF=$work/containers.conf LD_LIBRARY_PATH=$libraries
mkdir "$work/bin"
cat >"$work/bin/podman" <<END
#!/bin/sh
export CONTAINERS_CONF=$CONTAINERS_CONF LD_LIBRARY_PATH=$libraries
exec $tools/usr/bin/podman --root $work/state/storage --runroot /run/podman \\
  --storage-driver vfs --cgroup-manager cgroupfs "\$@"
END
chmod +x "$work/bin/podman"
export PATH=$work/bin:$PATH
podman load --quiet --input "$image" >&2
name=$(podman images --format '{{.Repository}}:{{.Tag}}' | head -1)
code=0
if [ -n "$pod" ]; then
  trap 'podman kube down "$pod" >&2 || true; umount -l "$work/state" || true; rm -rf "$work"' EXIT
  podman kube play --quiet --network host "$pod" >&2
  env -u LD_LIBRARY_PATH -u CONTAINERS_CONF "$@" || code=$?
  exit "$code"
fi
podman run --rm --cgroups disabled --user 0 --volume "$volume:/data" "$name" "$@" || code=$?
exit "$code"
