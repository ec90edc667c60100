# shellcheck shell=sh
# What the commands of a guest can call.

# meet NAME: wait until the other guest has come to the same point; fails when it has ended instead.
meet() {
    [ "$GUESTS" = 2 ] || return 0
    if [ "$ROLE" = a ]; then other=b; else other=a; fi
    mkdir -p /host/meet
    : >"/host/meet/$1.$ROLE"
    while [ ! -e "/host/meet/$1.$other" ]; do
        if [ -e "/host/code.$other" ]; then
            echo "guest $other ended before it came to $1" >&2
            return 1
        fi
        sleep 0.05
    done
}

# only ROLE COMMAND...: in this guest alone.
only() {
    [ "$ROLE" = "$1" ] || return 0
    shift
    "$@"
}

# until_true SECONDS COMMAND...: until the command succeeds. The seconds are those of a host that does nothing else.
until_true() {
    tries=$(awk -v seconds="$1" -v times="${SLOWNESS:-1}" 'BEGIN { print int(seconds * times * 20) }')
    shift
    while ! "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ]; then
            echo "not in time: $*" >&2
            return 1
        fi
        sleep 0.05
    done
}

# fails COMMAND...: it does. After `!` alone `sh -e` would go on in either case.
fails() {
    if "$@"; then
        echo "this should have failed: $*" >&2
        return 1
    fi
}

# answered NAME: the calls that were answered, as `peer call --progress /tmp/NAME.progress` counts them.
answered() {
    cat "/tmp/$1.progress" 2>/dev/null || echo 0
}

more_than() {
    [ "$(answered "$1")" -gt "$2" ]
}

# goes_on NAME: each of its lines has twenty more calls answered, soon.
goes_on() {
    until_true 20 more_than "$1" $(($(answered "$1") + 20))
}

# cable pull|plug: nothing leaves by eth1, or all does again; both machines have to call it. Unlike a link that is down,
# which ends queue pairs of soft-RoCE at once and then prevents new connections, no error is reported.
cable() {
    case $1 in
        pull) tc qdisc replace dev eth1 root netem loss 100% ;;
        plug) tc qdisc replace dev eth1 root pfifo ;;
    esac
}

# shellcheck source-path=SCRIPTDIR source=nfs.sh
. /usr/lib/nfs.sh
