# shellcheck shell=bash
# A block store for fio, as a process of its own. Sourced by tests/fio/run and tests/fio/compare.

# start_store PROGRAM DIRECTORY OPTION...: serves a new file, DIRECTORY/data, at $store; its process is $server.
start_store() {
    local program=$1 directory=$2 said
    shift 2
    rm -f "$directory/data"
    store=shm:$directory/store.sock
    exec {said}< <(exec "$program" --listen "$store" --store "$directory/data" "$@" 2>&1)
    server=$!
    read -r -t 60 -u "$said" line && [[ $line == *"listening at"* ]] || { echo "the block store: ${line:-says nothing}"; return 1; }
}

stop_store() {
    kill -"${1:-TERM}" "$server"
    wait "$server" 2>/dev/null || true
}
