# shellcheck shell=bash
# Emulated machines: started together, watched, and gone with the script that started them. Sourced by tests/vm/run.
#
#   $work/share     what both guests see as /host: commands, meet/, code.ROLE
#   $work/console.ROLE, $work/qemu.ROLE    what the kernel and the emulator say

# The role of each emulator that runs, by its process; and how those that have ended did that.
declare -A roles=() ends=()

# Timers are late on a host that is busy: what the kernel finds out about them is not to stop it.
readonly kernel_options="console=ttyS0 loglevel=5 panic=-1 oops=panic tsc=reliable no_timer_check"
# Where nothing is counted, what takes time and shows nothing is left out: tests of the kernel's ciphers, its defences against
# programs, and the wait of RCU for processors that would answer at once if asked.
readonly quick_options="cryptomgr.notests mitigations=off rcupdate.rcu_expedited=1"
# Also instructions for which an emulator takes longer than for those used in their place: copies by the byte (erms), products
# without carry for checksums (pclmulqdq), a longer walk of page tables (la57), guards around each access to a program (smap).
readonly quick_processor=max,-erms,-la57,-pclmulqdq,-smap
# An emulated processor counts as this one does. Left to find out how fast, on a busy host, the guest may take its clock for one
# that goes three times as fast. What is said of the speed of a processor is that of its counter only where it is virtual itself.
clock_option() {
    if [ "$counted" = yes ]; then echo " tsc_early_khz=1000000" && return; fi
    grep -qw hypervisor /proc/cpuinfo || return 0
    awk '/^cpu MHz/ { printf " tsc_early_khz=%d", $4 * 1000; exit }' /proc/cpuinfo
}

# What the kernel says on every emulated machine.
readonly usual='tsc: |MP-BIOS bug|mtrr: |APIC calibration|MMCONFIG|speed is unknown|reboot: Power down'

# slowness PROCESSORS: how many times as long this host takes now, for as many processors, as one of two processors that does
# nothing else: budgets of time are those of such a host. Never less than 1.
slowness() {
    local began=${EPOCHREALTIME/[.,]/} each workers=() normal
    for each in $(seq "$1"); do
        # Nothing but the shell's own work: $loop_us where there is a processor for it.
        (for ((each = 0; each < loop_count; each++)); do :; done) &
        workers+=($!)
    done
    wait "${workers[@]}"
    normal=$((loop_us * ($1 > 2 ? $1 : 2) / 2))
    awk -v took=$((${EPOCHREALTIME/[.,]/} - began)) -v normal="$normal" -v most="$slowest" \
        'BEGIN { times = took / normal; if (times < 1) times = 1; if (times > most) times = most; printf "%.1f\n", times }'
}
readonly loop_count=200000 loop_us=450000 slowest=8

# boot ROLE: one guest; its output comes out of here.
boot() {
    local role=$1 out=$work/output.$1
    mkfifo "$out"
    if [ "$guests" = 2 ]; then
        sed -u "s/^/$role| /" <"$out" &
    else
        cat <"$out" &
    fi
    readers+=($!)
    local network=(-net none)
    [ "$guests" = 2 ] && mapfile -t network < <(wire "$role")
    local accelerator=(-accel tcg,thread=multi -cpu "$quick_processor") options="$kernel_options $quick_options"
    if [ "$counted" = yes ]; then
        accelerator=(-accel tcg,thread=single -icount shift=0 -cpu max) options=$kernel_options
    fi
    # An emulator that is left alone ends: each of the three gets a signal when the one before it ends.
    setpriv --pdeathsig TERM timeout --kill-after 2 "$budget" setpriv --pdeathsig KILL \
        qemu-system-x86_64 -name "rpcrdma-vm-$role-$$" -nodefaults -no-user-config -no-reboot -display none \
        "${accelerator[@]}" -smp "$processors" -m "$memory" \
        -kernel "$kernels/vmlinuz" -initrd "$work/initrd" \
        -append "$options$(clock_option) ROLE=$role GUESTS=$guests DEVICE=$device RDMA=$rdma SYSTEMD=$systemd SLOWNESS=$times" \
        -serial "file:$work/console.$role" \
        -device virtio-serial-pci -chardev "file,id=out,path=$out" -device virtserialport,chardev=out,name=out \
        -virtfs "local,path=$work/share,mount_tag=host,security_model=none" \
        -virtfs "local,path=$results,mount_tag=out,security_model=none" \
        "${network[@]}" </dev/null >"$work/qemu.$role" 2>&1 &
    roles[$!]=$role
}

# wire ROLE: both guests on one wire, which is a socket with a name of its own.
wire() {
    local role=$1 server=off
    if [ "$role" = a ]; then server=on; else until_there "$work/wire"; fi
    printf '%s\n' -netdev "stream,id=wire,server=$server,addr.type=unix,addr.path=$work/wire" \
        -device "virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0$([ "$role" = a ] && echo 1 || echo 2),host_mtu=4200"
    [ -z "$capture" ] || [ "$role" = b ] ||
        printf '%s\n' -object "filter-dump,id=capture,netdev=wire,file=$capture"
}

until_there() {
    local tries=200
    while [ ! -e "$1" ] && [ $((tries--)) -gt 0 ]; do
        sleep 0.05
    done
}

# wait_for_all: how each emulator ended, in $ends. When one ends without a result, the others are not waited for.
wait_for_all() {
    local code ended role
    while [ ${#roles[@]} -gt 0 ]; do
        code=0
        wait -n -p ended "${!roles[@]}" || code=$?
        role=${roles[$ended]}
        ends[$role]=$code
        unset "roles[$ended]"
        [ -e "$work/share/code.$role" ] || kill "${!roles[@]}" 2>/dev/null || true
    done
}

# outcome ROLE: the exit code of the commands, or what happened instead of one.
outcome() {
    local role=$1 ended=$2 code
    if [ -e "$work/share/code.$role" ]; then
        code=$(cat "$work/share/code.$role")
        [ "$code" = 0 ] || console "$role" "the commands in guest $role ended with $code"
        return "$code"
    fi
    if [ "$ended" = 124 ]; then
        console "$role" "guest $role was not done after $budget s"
    elif grep -q 'Kernel panic' "$work/console.$role" 2>/dev/null; then
        console "$role" "the kernel of guest $role panicked"
    else
        console "$role" "guest $role ended without a result"
    fi
    return "$broken"
}

# console ROLE REASON: what one wants to see of a guest that failed.
console() {
    {
        printf 'vm: %s\n' "$2"
        tail -n 5 "$work/qemu.$1" | sed 's/^/    emulator| /'
        tr -d '\r' <"$work/console.$1" | grep -avE "$usual" | tail -n 40 | sed 's/^/    console| /'
    } >&2
}

# warnings ROLE: the kernel should have nothing to warn of.
warnings() {
    grep -aE 'WARNING:|BUG:|Oops|Call Trace|blocked for more than|general protection' "$work/console.$1" |
        head -n 5 | sed "s/^/vm: kernel of guest $1: /" >&2 || true
}
