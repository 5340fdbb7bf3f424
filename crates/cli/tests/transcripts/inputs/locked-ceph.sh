# The `ceph` program of a recorded cluster that another process holds: its claim changes at each look.
while [ "${1#--}" != "$1" ]; do shift 2; done
case "$*" in
"config-key dump stagger/lock/")
    beat=$(($(cat beat 2>/dev/null || echo 0) + 1))
    echo "$beat" >beat
    claim='{"incarnation":"other","run":"20261101-1","host":"ops2","process":77,"since":"2026-11-01T03:00:00Z"'
    claim="$claim,\"fence\":4,\"beat\":$beat,\"expires\":30}"
    printf '{"stagger/lock/other":"%s"}\n' "$(printf '%s' "$claim" | sed 's/"/\\"/g')"
    ;;
"tell mon."*" perf dump") echo '{"mon":{},"rocksdb":{}}' ;;
"config-key set stagger/preflight "* | "config-key rm stagger/preflight") ;;
"config-key dump stagger/fence") echo '{"stagger/fence":"4"}' ;;
*) cat "16.2.15/$(printf '%s' "$*" | tr -c 'a-z0-9' _).json" ;;
esac
