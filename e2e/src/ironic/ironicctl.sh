#!/bin/sh
# ironicctl: what package managers, init and an operator's scripts at the balancer are, for one test cluster.
#
#   ironicctl SERVICE install RELEASE   its code from its next start on
#   ironicctl SERVICE release           what is installed
#   ironicctl SERVICE pin [RELEASE]     what it is pinned to from its next start on; no word: not pinned
#   ironicctl SERVICE pinned            what that is; nothing: not pinned
#   ironicctl SERVICE start             and waits until it serves
#   ironicctl SERVICE ready             waits until it serves, after a start
#   ironicctl SERVICE stop              SIGTERM, and waits until it is gone
#   ironicctl SERVICE restart           both
#   ironicctl SERVICE kill              it crashes
#   ironicctl SERVICE drain             the balancer sends nothing new to it, and waits until it has nothing left to do
#   ironicctl SERVICE give-back         the balancer sends to it again, and waits until it finds it healthy
#   ironicctl SERVICE status            "running RELEASE PID" (exit 0) or "stopped" (exit 1)
#   ironicctl db start|stop|kill|status
#   ironicctl mq start|stop|kill|status   RabbitMQ, where services call each other over it
#   ironicctl ks start|stop|kill|status   Keystone, where the API wants to know who asks
#   ironicctl db save NAME              all of Ironic's database into NAME.sql, and says how much that is
#   ironicctl balancer start|stop|status
#   ironicctl balancer ask WORD…        a command of its admin socket
#   ironicctl code RELEASE PROGRAM [WORD…]   ironic-dbsync or ironic-status of a release; its exit code
#   ironicctl code RELEASE python3 [WORD…]   the Python that has it
#
# SERVICE is c1 to c4 (conductors; there may be two), a1 or a2 (APIs). It runs with the root's files, in the cluster's namespaces. Each verb
# may be repeated, and different services may be worked on at the same time; one service's verbs take turns.
#
# A line "RELEASE fail" in <cluster>/fault/SERVICE makes the start of that release fail.
#
# Exit: 0 done, 1 failed (or stopped, for status), 2 wrong use, 3 unknown release.
set -eu

dir=$(cd "$(dirname "$0")" && pwd)
code=/opt/ironic
engine=$(cat "$dir/engine")

say() { echo "ironicctl: $*" >&2; }
wrong() { say "$*; see the head of $0"; exit 2; }
[ $# -ge 2 ] || wrong "too few words"
name=$1 verb=$2
shift 2
pidfile=$dir/run/$name.pid
log=$dir/log/$name.log

known() {
    case $1 in '' | .* | *[!0-9.]*) ;; *) [ ! -d "$code/$1" ] || return 0 ;; esac
    say "no release '$1' here; there are: $(cd "$code" && echo */)"
    exit 3
}

# When a process began, as the kernel counts; nothing, if it has ended.
began() { sed -n '/) Z/!s/.*) //p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# The pid of what runs, or nothing. A pid is used again at some time, and some programs change their command line.
pid_of() {
    pid='' when=''
    read -r pid when 2>/dev/null <"$pidfile" || true
    [ -n "$when" ] && [ "$(began "$pid")" = "$when" ] || pid=
}

# Runs in the background, in a session of its own, whose leader's pid is written down. Nothing of who calls goes on in
# it: no proxies, no certificates, no time zone, no lock.
launch() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 setsid "$@" >>"$log" 2>&1 </dev/null 9>&- &
    echo "$! $(began $!)" >"$pidfile"
}

# Waits until something is so: SECONDS WHAT COMMAND…
await() {
    limit=$1 what=$2 tenths=0
    shift 2
    until "$@"; do
        if [ $tenths -ge $((limit * 10)) ]; then say "$name: $what: not within $limit s"; return 1; fi
        tenths=$((tenths + 1))
        sleep 0.1
    done
}

# The same for what is being started, which may end instead.
await_start() {
    limit=$1 tenths=0
    shift
    until "$@"; do
        pid_of
        if [ -z "$pid" ]; then why="it ended"; break; fi
        if [ $tenths -ge $((limit * 10)) ]; then why="not within $limit s"; break; fi
        tenths=$((tenths + 1))
        sleep 0.1
    done
    [ -n "${why:-}" ] || return 0
    say "$name does not serve: $why; its last lines:"
    tail -n 12 "$log" >&2
    exit 1
}

is_gone() { [ -z "$(began "$1")" ]; }

end() {
    pid_of
    [ -n "$pid" ] || return 0
    kill "-$1" "$pid" 2>/dev/null || true
    if ! await 60 "gone after $1" is_gone "$pid"; then
        say "$name (pid $pid): SIGKILL"
        kill -KILL "$pid" 2>/dev/null || true
        await 15 "gone after KILL" is_gone "$pid"
    fi
    # What it had started, if it did not end that itself.
    kill -KILL -- "-$pid" 2>/dev/null || true
}

status() {
    pid_of
    if [ -z "$pid" ]; then echo stopped; exit 1; fi
    echo "running ${1:-} $pid" | tr -s ' '
}

# --- the balancer

ask() { echo "$*" | socat -t 10 - "UNIX-CONNECT:$dir/haproxy.sock"; }

# Requests that a server has or that wait for it, wherever it stands.
at_work() { ask show stat | awk -F, -v server="$1" '$2 == server { n += $3 + $5 } END { print n + 0 }'; }

has_nothing() { [ "$(at_work "$1")" = 0 ]; }

# Whether it is up wherever it stands.
is_up() { ask show stat | awk -F, -v server="$1" '$2 == server { n++; if ($18 !~ /^UP/) down = 1 } END { exit !(n && !down) }'; }

# The backends in which a service stands.
backends() { ask show stat | awk -F, -v server="$name" '$2 == server { print $1 }'; }

set_state() {
    for backend in $(backends); do
        said=$(ask "set server $backend/$name state $1")
        [ -z "$(echo "$said" | tr -d '[:space:]')" ] || { say "$backend/$name: $said"; exit 1; }
    done
}

# --- services

home=$dir/services/$name

service() {
    case $name in
        c1) peer=c2 program=ironic-conductor ;;
        c2) peer=c1 program=ironic-conductor ;;
        c3) peer=c4 program=ironic-conductor ;;
        c4) peer=c3 program=ironic-conductor ;;
        a1) peer=a2 program=ironic-api ;;
        a2) peer=a1 program=ironic-api ;;
        *) wrong "no service '$name'" ;;
    esac
}

sql() {
    if [ "$engine" = postgres ]; then
        psql --no-psqlrc --quiet --tuples-only --no-align --host 127.0.0.1 --username postgres --dbname ironic \
            --command "$1"
        return
    fi
    mariadb --no-defaults --socket="$dir/mysql.sock" --batch --skip-column-names ironic --execute="$1"
}

# A conductor takes part in the ring when it says so; its port is open before that.
serves() {
    case $name in
        c*) tail -c "+$(($(cat "$home/started") + 1))" "$log" | grep -q 'Created RPC server' ;;
        *) curl --noproxy '*' --silent --fail --max-time 5 --output /dev/null "$(cat "$home/url")" ;;
    esac
}

holds_no_node() { [ "$(sql "select count(*) from nodes where reservation = '$(cat "$home/registered")'")" = 0 ]; }

start() {
    pid_of
    [ -z "$pid" ] || return 0
    venv=$(readlink "$home/code")
    release=${venv##*/}
    known "$release"
    if grep -qsxF "$release fail" "$dir/fault/$name"; then
        say "$name on $release: made to fail at its start (fault/$name)"
        exit 1
    fi
    # Where its log begins.
    wc -c <"$log" >"$home/started"
    echo "$release" >"$home/running"
    launch "$venv/bin/$program" --config-file "$dir/ironic.conf" --config-file "$home/service.conf" \
        --config-file "$home/pin.conf"
    await_start 180 serves
}

drain() {
    is_up "$peer" || { say "$peer is not up at the balancer, so $name is not drained"; exit 1; }
    set_state drain
    await 60 "nothing left at the balancer" has_nothing "$name"
    case $name in c*) await 60 "no node is locked by it" holds_no_node ;; esac
}

work_on_service() {
    service
    case $verb in
        install)
            known "${1:-}"
            ln -sfn "$code/$1" "$home/code.new"
            mv -T "$home/code.new" "$home/code"
            ;;
        release) venv=$(readlink "$home/code") && echo "${venv##*/}" ;;
        pin)
            { echo "[DEFAULT]"; [ -z "${1:-}" ] || echo "pin_release_version = $1"; } >"$home/pin.conf.new"
            mv "$home/pin.conf.new" "$home/pin.conf"
            ;;
        pinned) sed -n 's/^pin_release_version *= *//p' "$home/pin.conf" ;;
        start) start ;;
        ready) await_start 180 serves ;;
        stop) end TERM ;;
        restart) end TERM; start ;;
        kill) end KILL ;;
        drain) drain ;;
        give-back)
            set_state ready
            [ -z "$(backends)" ] || await 60 "up at the balancer" is_up "$name"
            ;;
        status)
            # The code that it was started from, whatever is installed by now.
            status "$(cat "$home/running" 2>/dev/null || true)"
            ;;
        *) wrong "no verb '$verb'" ;;
    esac
}

# --- what they run on

db_answers() {
    case $engine in
        postgres) pg_isready --quiet --host 127.0.0.1 ;;
        *) mariadb-admin --no-defaults --socket="$dir/mysql.sock" ping >/dev/null 2>&1 ;;
    esac
}

# PostgreSQL does not run as root, and nobody else can look into the cluster's folder.
postgres_data=/tmp/postgres
as_postgres() { (cd /tmp && setpriv --reuid postgres --regid postgres --clear-groups "$@"); }

start_db() {
    pid_of
    [ -z "$pid" ] || return 0
    case $engine in
        postgres)
            bin=$(echo /usr/lib/postgresql/*/bin)
            if [ ! -d $postgres_data ]; then
                install -d -o postgres $postgres_data /run/postgresql
                as_postgres "$bin/initdb" -D $postgres_data --auth trust --encoding UTF8 >>"$log" 2>&1
            fi
            launch setpriv --reuid postgres --regid postgres --clear-groups "$bin/postgres" -D $postgres_data \
                -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=300
            ;;
        *)
            launch mariadbd --no-defaults --user=root --datadir="$dir/mysql" --socket="$dir/mysql.sock" \
                --bind-address=127.0.0.1 --port=3306 --skip-name-resolve --innodb-buffer-pool-size=128M \
                --innodb-flush-log-at-trx-commit=2 --performance-schema=OFF
            ;;
    esac
    await_start 60 db_answers
}

save() {
    saved=$dir/$1.sql
    case $engine in
        postgres) pg_dump --host 127.0.0.1 --username postgres ironic >"$saved.part" ;;
        *) mariadb-dump --no-defaults --socket="$dir/mysql.sock" --single-transaction ironic >"$saved.part" ;;
    esac
    mv "$saved.part" "$saved"
    echo "$(wc -c <"$saved") bytes in $saved"
}

mq_answers() { curl --noproxy '*' --silent --fail --max-time 5 --output /dev/null --user guest:guest http://127.0.0.1:15672/api/overview; }

start_mq() {
    pid_of
    [ -z "$pid" ] || return 0
    launch env HOME="$dir/mq" RABBITMQ_NODENAME=rabbit@localhost RABBITMQ_MNESIA_BASE="$dir/mq" RABBITMQ_LOGS=- \
        RABBITMQ_LOG_BASE="$dir/mq" RABBITMQ_PID_FILE="$dir/mq/pid" RABBITMQ_CONFIG_FILE="$dir/mq/rabbitmq.conf" \
        RABBITMQ_ENABLED_PLUGINS_FILE="$dir/mq/enabled_plugins" /usr/lib/rabbitmq/bin/rabbitmq-server
    await_start 60 mq_answers
    rights='^(ironic|stagger[.]ironic|ironic[.]conductor_manager[.].*)$'
    mq_put users/stagger '{"password": "secret", "tags": "policymaker"}'
    mq_put permissions/%2F/stagger "{\"configure\": \"$rights\", \"write\": \"$rights\", \"read\": \"$rights\"}"
}

mq_put() { curl --noproxy '*' --silent --show-error --fail --max-time 10 --user guest:guest --request PUT --data "$2" "http://127.0.0.1:15672/api/$1"; }

ks_answers() { curl --noproxy '*' --silent --fail --max-time 5 --output /dev/null --cacert "$dir/keystone/ca.pem" https://127.0.0.1:5000/v3; }

start_ks() {
    pid_of
    [ -z "$pid" ] || return 0
    conf=$dir/keystone/keystone.conf
    if [ ! -f "$dir/keystone/keystone.db" ]; then
        url=https://127.0.0.1:5000/v3
        urls="--bootstrap-admin-url $url --bootstrap-internal-url $url --bootstrap-public-url $url"
        for step in db_sync "fernet_setup --keystone-user root --keystone-group root" \
            "credential_setup --keystone-user root --keystone-group root" \
            "bootstrap --bootstrap-username admin --bootstrap-password secret --bootstrap-region-id one $urls"; do
            # shellcheck disable=SC2086
            /opt/keystone/bin/keystone-manage --config-file "$conf" $step >>"$log" 2>&1
        done
    fi
    launch env OS_KEYSTONE_CONFIG_FILES="$conf" /opt/keystone/bin/python3 "$dir/lib/serve_keystone.py" \
        "$dir/keystone/certificate.pem" "$dir/keystone/key.pem"
    await_start 60 ks_answers
}

start_balancer() {
    pid_of
    [ -z "$pid" ] || return 0
    launch haproxy -db -f "$dir/haproxy.cfg"
    await_start 20 test -S "$dir/haproxy.sock"
}

work_on_machine() {
    case $verb in
        start) "start_$name" ;;
        # PostgreSQL waits at a TERM until its clients have gone.
        stop) if [ "$name $engine" = "db postgres" ]; then end INT; else end TERM; fi ;;
        kill) end KILL ;;
        status) status ;;
        *) wrong "no verb '$verb'" ;;
    esac
}

if [ "$name" = code ]; then
    release=$verb program=${1:-}
    known "$release"
    [ $# -eq 0 ] || shift
    case $program in
        ironic-dbsync | ironic-status) set -- "$program" --config-file "$dir/ironic.conf" "$@" ;;
        python3) set -- "$program" "$@" ;;
        *) wrong "no program '$program'" ;;
    esac
    program=$1
    shift
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$code/$release/bin/$program" "$@"
fi
case $name in
    c1 | c2 | c3 | c4 | a1 | a2 | db | ks | mq | balancer) ;;
    *) wrong "no service '$name'" ;;
esac
if [ "$name $verb" = "db save" ]; then save "$1"; exit; fi
if [ "$name $verb" = "balancer ask" ]; then ask "$@"; exit; fi
case $verb in
    status | release | pinned | ready) ;;
    *) exec 9>"$dir/run/$name.lock"; flock 9 ;;
esac
case $name in
    db | ks | mq | balancer) work_on_machine ;;
    *) work_on_service "$@" ;;
esac
