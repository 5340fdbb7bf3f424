# The `ceph` program of a recorded cluster on hosts, whose oracle has nothing against anything.
while [ "${1#--}" != "$1" ]; do shift 2; done
case "$*" in
"osd ok-to-stop "*)
    shift 2
    printf '{"ok_to_stop":true,"osds":[%s],"num_ok_pgs":1,"num_not_ok_pgs":0}\n' "$(printf '%s' "$*" | tr ' ' ,)"
    ;;
*" ok-to-stop "*) echo "all will be well" >&2 ;;
*) cat "on-hosts/$(printf '%s' "$*" | tr -c 'a-z0-9' _).json" ;;
esac
