#!/bin/sh
# Restarts daemons by systemd.
#
#   restart.sh UNIT...      as ceph-osd@3.service
#
# Debian's units may be started three times in half an hour, which also counts what an operator does: the count begins anew.
set -eu
systemctl reset-failed "$@" 2>/dev/null || true
systemctl restart "$@"
