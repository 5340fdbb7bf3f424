#!/bin/sh
# The first process of a host, until it is systemd. It is in the host's namespaces but that of cgroups.
#
#   boot.sh FOLDER LOWER CGROUP      see host.sh
set -eu
own=$1 lower=$2 cgroup=$3
# /proc is that of the sandbox still, so this is our pid as the sandbox knows it.
read -r pid rest </proc/self/stat
echo 0 >"$cgroup/cgroup.procs"
hostname "${own##*/}"

root=$own/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$own/upper,workdir=$own/work" "$root"
mount -t proc proc "$root/proc"
mount --bind "$own/boot-id" "$root/proc/sys/kernel/random/boot_id"
mount -t sysfs -o ro sysfs "$root/sys"

dev=$root/dev
mount -t tmpfs -o mode=755 tmpfs "$dev"
mkdir "$dev/pts" "$dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$dev/shm"
for device in null:3 zero:5 full:7 random:8 urandom:9; do
    mknod -m 666 "$dev/${device%:*}" c 1 "${device#*:}"
done
mknod -m 666 "$dev/tty" c 5 0
ln -s pts/ptmx "$dev/ptmx"
ln -s /proc/self/fd "$dev/fd"
for stream in stdin:0 stdout:1 stderr:2; do ln -s "fd/${stream#*:}" "$dev/${stream%:*}"; done

mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"

# Disks of its own, and what udev would tell of all: there is none, and who looks at disks asks for it.
if [ -e "$own/disks" ]; then
    while read -r disk; do mknod -m 660 "$dev/${disk#/dev/}" b 7 "${disk#/dev/loop}"; done <"$own/disks"
    mkdir -p "$root/run/udev/data" "$root/run/lvm"
    for device in /sys/block/*/dev; do echo E:DEVTYPE=disk >"$root/run/udev/data/b$(cat "$device")"; done
fi
# Containers lie in no overlay, where theirs could not lie.
if [ -d "$own/containers" ]; then
    mkdir -p "$root/var/lib/containers"
    mount --bind "$own/containers" "$root/var/lib/containers"
fi

# From here on its cgroup is the root of all that it sees.
exec unshare --cgroup sh -c '
set -eu
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
echo "$2" >"$3.new"
mv "$3.new" "$3"
cd "$1"
mkdir -p old
pivot_root . old
cd /
umount -l /old
exec env -i container=stagger PATH=/usr/sbin:/usr/bin /sbin/init
' boot "$root" "$pid" "$own/pid"
