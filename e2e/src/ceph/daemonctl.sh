#!/bin/sh
# daemonctl: what a host's package and service managers would be, for one test cluster.
#
#   daemonctl use KIND ID RELEASE      the software of a daemon: the next start runs that release
#   daemonctl start|stop|restart KIND ID
#   daemonctl status KIND ID           "running RELEASE PID" (exit 0) or "stopped" (exit 1)
#   daemonctl release KIND ID          the release that the next start runs
#   daemonctl plain-wal osd ID RELEASE the OSD stopped, and its log put into the form of before release 20, by
#                                      the tool of that release
#   daemonctl rebuild mon ID RELEASE   the mon's store made anew on that release, then started
#   daemonctl empty osd ID RELEASE     the OSD destroyed and made anew on an empty disk; it is not started
#   daemonctl rebuild osd ID RELEASE   the OSD destroyed and made anew on that release, then started
#
# KIND is mon, mgr, osd, mds or rgw. It runs inside the cluster's namespaces. Each verb may be repeated,
# and different daemons may be worked on at the same time; one daemon's verbs take turns.
#
# Faults, for tests: a line "RELEASE fail" in <cluster>/fault/KIND.ID makes the start of that release
# fail before the store is opened; "RELEASE crash-after N" has it killed N seconds after its start; "RELEASE start-after N" has its
# starts answered at once, and it begins N seconds later.
#
# Exit: 0 done, 1 failed (or stopped, for status), 2 wrong use, 3 unknown release.
set -eu

dir=$(cd "$(dirname "$0")" && pwd)
conf=$dir/ceph.conf

say() { echo "daemonctl: $*" >&2; }
wrong() { say "$*"; say "use: daemonctl use|start|stop|restart|status|release|plain-wal|empty|rebuild KIND ID [RELEASE]"; exit 2; }

[ $# -ge 3 ] || wrong "too few words"
verb=$1 kind=$2 id=$3 asked=${4:-}
case $id in *[!A-Za-z0-9-]* | '') wrong "no daemon id: '$id'" ;; esac
case $kind in
    mon | mgr | osd | mds) name=$kind.$id ;;
    rgw) name=client.rgw.$id ;;
    *) wrong "no kind of daemon: '$kind'" ;;
esac
daemon=$kind.$id
pidfile=$dir/run/$name.pid
[ -e "$dir/sw/$daemon" ] || wrong "no daemon $daemon in this cluster"

# The root of a release.
root_of() {
    case $1 in
        '' | */*) root= ;;
        *) root=$(cat "$dir/releases/$1" 2>/dev/null || true) ;;
    esac
    if [ -z "$root" ]; then
        say "no release '$1' here; there are: $(ls "$dir/releases" | tr '\n' ' ')"
        exit 3
    fi
}

# The pid of the running daemon, or nothing. A pid is used again at some time: the program must be ours.
pid_of() {
    pid=$(cat "$pidfile" 2>/dev/null || true)
    [ -n "$pid" ] || return 0
    words=$({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null || true)
    case "$words" in *"$conf"*) ;; *)
        # The leading thread of a dying process has no command line; it still holds its locks.
        state=$(sed 's/.*) \(.\).*/\1/' "/proc/$pid/stat" 2>/dev/null || true)
        [ "$state" = Z ] || pid= ;;
    esac
}

# The release that is in a root.
release_in() {
    for file in "$dir"/releases/*; do
        if [ "$(cat "$file")" = "$1" ]; then echo "${file##*/}"; return; fi
    done
    echo unknown
}

selected() { release_in "$(cat "$dir/sw/$daemon")"; }

use() {
    root_of "$1"
    echo "$root" >"$dir/sw/$daemon.new"
    mv "$dir/sw/$daemon.new" "$dir/sw/$daemon"
}

# The processes of the daemon besides that of its file. A metadata server or manager that hears that it was
# replaced starts itself anew, and for a moment no file names it.
pids_besides() {
    besides=
    case $kind in mds | mgr) ;; *) return 0 ;; esac
    for file in $(grep -slzxF -- "$conf" /proc/[0-9]*/cmdline | xargs -r grep -slzxF -- "ceph-$kind" |
        xargs -r grep -slzxF -- "$id"); do
        other=${file#/proc/}
        besides="$besides ${other%/cmdline}"
    done
}

# Until it is gone: a zombie's other threads still hold its locks. The first process reaps at once.
end() {
    kill -TERM "$1" 2>/dev/null || true
    twentieths=0
    while [ -e "/proc/$1" ]; do
        if [ $twentieths -eq 600 ]; then
            say "$daemon did not leave within 30 s of SIGTERM: SIGKILL"
            kill -KILL "$1" 2>/dev/null || true
        elif [ $twentieths -ge 900 ]; then
            say "$daemon (pid $1) did not leave within 15 s of SIGKILL"
            exit 1
        fi
        twentieths=$((twentieths + 1))
        sleep 0.05
    done
}

stop() {
    pid_of
    [ -z "$pid" ] || end "$pid"
    while pids_besides && [ -n "$besides" ]; do
        for other in $besides; do end "$other"; done
    done
}

# The command line of the daemon, run in the root of a release. Locks are not handed down to it.
run_in() {
    in=$1
    shift
    host=$(cat "$dir/host-of/$daemon" 2>/dev/null || true)
    if [ -n "$host" ]; then
        # It tells the host that it stands on, and its like on other hosts do not hear of it.
        set -- unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" chroot "$in" env PYTHONPATH=/opt/stagger "$@"
    else
        set -- chroot "$in" env PYTHONPATH=/opt/stagger "$@"
    fi
    "$@" 9>&-
}

launch() {
    case $kind in
        mon) run_in "$root" ceph-mon -c "$conf" -i "$id" --public-addrv "[v2:$(cat "$dir/sw/$daemon.addr")]" ;;
        rgw) run_in "$root" radosgw -c "$conf" -n "$name" ;;
        *) run_in "$root" "ceph-$kind" -c "$conf" -i "$id" ;;
    esac
}

start() {
    pid_of
    if [ -n "$pid" ]; then
        [ ! -e "/proc/$pid" ] || return 0
    fi
    release=$(selected)
    root_of "$release"
    said=$dir/log/start-$daemon
    fault=$(sed -n "s/^$release //p" "$dir/fault/$daemon" 2>/dev/null || true)
    if [ "$fault" = fail ]; then
        say "$daemon on $release: made to fail before its store is opened (fault/$daemon)"
        exit 1
    fi
    case $fault in
        'start-after '*)
            if [ -z "${STARTS_LATE:-}" ]; then
                after=${fault#start-after }
                STARTS_LATE=1 setsid sh -c 'sleep "$1"; shift; exec "$@"' late "$after" "$0" start "$kind" "$id" \
                    </dev/null >/dev/null 2>&1 9>&- &
                return 0
            fi
            ;;
    esac
    tries=0
    until launch >"$said" 2>&1; do
        # A process that has just ended may hold its lock for a moment. The exit code tells nothing:
        # a store that cannot be opened has the same.
        if grep -q 'failed to lock pidfile' "$said" && [ $tries -lt 30 ]; then
            tries=$((tries + 1))
            sleep 0.1
            continue
        fi
        say "$daemon on $release did not start; its last lines:"
        tail -n 12 "$said" >&2
        tail -n 12 "$dir/log/$name.log" >&2 2>/dev/null || true
        exit 1
    done
    case $fault in
        'crash-after '*)
            pid_of
            crash=${fault#crash-after }
            setsid sh -c 'sleep "$1"; kill -KILL "$2"' crash "$crash" "$pid" </dev/null >/dev/null 2>&1 9>&- &
            ;;
    esac
}

admin() { run_in "$root" timeout 60 ceph -c "$conf" "$@"; }

rebuild_mon() {
    map=$dir/run/rebuild-$daemon.monmap
    # From the others, before anything is taken away.
    stop
    admin mon getmap -o "$map" 2>/dev/null
    rm -rf "$dir/$daemon.new"
    run_in "$root" ceph-mon -c "$conf" --mkfs -i "$id" --monmap "$map" --keyring "$dir/keyring/mons" \
        --mon-data "$dir/$daemon.new"
    rm -rf "$dir/$daemon"
    mv "$dir/$daemon.new" "$dir/$daemon"
}

rebuild_osd() {
    stop
    admin osd down "$id" 2>/dev/null
    # It is not destroyed while anybody thinks that it is up.
    tries=0
    until admin osd destroy "$id" --yes-i-really-mean-it 2>"$dir/run/rebuild-$daemon.err"; do
        tries=$((tries + 1))
        if [ $tries -ge 10 ]; then cat "$dir/run/rebuild-$daemon.err" >&2; exit 1; fi
        sleep 0.5
    done
    uuid=$(cat /proc/sys/kernel/random/uuid)
    key=$(sed -n 's/^[[:space:]]*key = //p' "$dir/keyring/osd.$id")
    echo "{\"cephx_secret\": \"$key\"}" >"$dir/run/rebuild-$daemon.json"
    admin osd new "$uuid" "$id" -i "$dir/run/rebuild-$daemon.json" >/dev/null
    rm -rf "$dir/$daemon"
    mkdir "$dir/$daemon"
    if ! run_in "$root" ceph-osd -c "$conf" -i "$id" --mkfs --osd-uuid "$uuid" >"$dir/log/mkfs-$daemon" 2>&1; then
        say "$daemon: its store could not be made; the last lines:"
        tail -n 12 "$dir/log/mkfs-$daemon" >&2
        exit 1
    fi
}

exec 9>"$dir/run/ctl.$daemon"
case $verb in
    status | release) ;;
    *) flock 9 ;;
esac

case $verb in
    use) use "$asked" ;;
    start) start ;;
    stop) stop ;;
    restart) stop; start ;;
    release) selected ;;
    status)
        pid_of
        if [ -n "$pid" ] && [ -e "/proc/$pid" ]; then
            echo "running $(release_in "$(readlink "/proc/$pid/root" || true)") $pid"
        else
            echo stopped
            exit 1
        fi
        ;;
    plain-wal)
        [ "$kind" = osd ] || wrong "a $kind has no such log"
        root_of "$asked"
        stop
        if ! run_in "$root" ceph-bluestore-tool revert-wal-to-plain --path "$dir/$daemon" \
            >"$dir/log/plain-wal-$daemon" 2>&1; then
            say "$daemon: its log stays as it is; the last lines:"
            tail -n 12 "$dir/log/plain-wal-$daemon" >&2
            exit 1
        fi
        ;;
    empty)
        [ "$kind" = osd ] || wrong "a $kind has no disk"
        root_of "$asked"
        rebuild_osd
        ;;
    rebuild)
        root_of "$asked"
        case $kind in
            mon) rebuild_mon ;;
            osd) rebuild_osd ;;
            *) wrong "nothing is stored by a $kind: use, then restart" ;;
        esac
        use "$asked"
        start
        ;;
    *) wrong "no verb '$verb'" ;;
esac
