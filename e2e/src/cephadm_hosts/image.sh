#!/bin/sh
# image.sh ROOT [LAYER]: packs what an image of Ceph is made of, LAYER laid over ROOT.
set -eu
root=$1
if [ $# -gt 1 ]; then
    # The mount is seen here alone.
    mount -t overlay -o "lowerdir=$2:$root" overlay "$root"
fi
exec tar -C "$root" --exclude=./usr/share/doc --exclude=./var/lib/apt/lists --exclude=./var/cache --exclude='./proc/*' \
    --exclude='./sys/*' --exclude='./dev/*' --exclude='./tmp/*' --exclude='./run/*' --exclude=./root/.cache -cf - .
