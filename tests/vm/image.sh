# shellcheck shell=bash
# The guest's file system as archives of cpio: one that every guest has, one for each additional package, one
# for what a run brings. The kernel unpacks them one behind the other. Sourced by tests/vm/run.

readonly base_packages=(
    busybox-static dash kmod iproute2 netbase procps
    libibverbs1 ibverbs-providers librdmacm1 ibverbs-utils rdmacm-utils
    nfs-common nfs-kernel-server rpcbind keyutils libtirpc-common
)
readonly base_programs=(
    dash kmod ip tc ss rdma sysctl ps pkill pgrep
    ibv_devinfo ibv_devices ibv_rc_pingpong rping udaddy ucmatose
    rpcbind exportfs rpc.mountd rpc.nfsd rpc.statd mount.nfs umount.nfs showmount nfsstat keyctl request-key
)
# Loaded at run time by name, so ldd does not see them.
readonly base_libraries=(
    libibverbs.so.1 librdmacm.so.1 libgcc_s.so.1 libnss_files.so.2 libibverbs/librxe-rdmav34.so
)
readonly lib=usr/lib/x86_64-linux-gnu

# base_image: $cache/base-KEY.cpio is what this script makes of the packages.
base_image() {
    base=$cache/base-$(sha256sum "$vm/image.sh" | head -c 12).cpio
    [ -e "$base" ] && touch "$base" && return
    echo "vm: making the image of the guests" >&2
    unpacked "${base_packages[@]}"
    local tree=$cache/tree name
    rm -rf "$tree"
    skeleton "$tree"
    for name in "${base_programs[@]}"; do
        found_program "$name" "$tree"
    done
    for name in "${base_libraries[@]}"; do
        library "$name" "$tree"
    done
    links "$tree"
    find "$cache" -maxdepth 1 -name '*.cpio' -mtime +7 -delete
    archive "$tree" "$base"
    rm -rf "$tree"
}

# package_image PACKAGE: $cache/with-PACKAGE.cpio has the programs of the package and their libraries.
package_image() {
    local package=$1 tree=$cache/tree name
    [ -e "$cache/with-$package.cpio" ] && return
    unpacked "$package"
    rm -rf "$tree"
    mkdir -p "$tree"
    for name in $(sed -nE 's,^\./(usr/)?s?bin/([^/]+)$,\2,p' "$cache/packages/$package"); do
        found_program "$name" "$tree"
    done
    archive "$tree" "$cache/with-$package.cpio"
    rm -rf "$tree"
}

# run_image TREE FILE[:PATH]...: what a run brings. Programs go to /usr/local/bin, other files to /in.
run_image() {
    local tree=$1 pair file path
    shift
    mkdir -p "$tree/etc" "$tree/usr/lib"
    cp "$vm"/guest/etc/* "$tree/etc/"
    cp "$vm"/guest/*.sh "$tree/usr/lib/"
    [ "$systemd" = no ] || { mkdir -p "$tree/usr/lib/systemd/system" && cp "$vm"/guest/*.service "$tree/usr/lib/systemd/system/"; }
    cp "$vm/guest/init" "$tree/init"
    chmod 0755 "$tree" "$tree/init"
    for pair in "$@"; do
        file=${pair%%:*}
        [ -e "$file" ] || fail "there is no file $file"
        path=/in/${file##*/}
        [ -f "$file" ] && [ -x "$file" ] && path=/usr/local/bin/${file##*/}
        [ "$pair" = "$file" ] || path=${pair#*:}
        if [ -f "$file" ] && [ -x "$file" ]; then
            program "$file" "$tree" "$path"
        else
            mkdir -p "$tree${path%/*}"
            cp -rL "$file" "$tree$path"
        fi
    done
}

# skeleton TREE: directories, and what the packages have in /etc.
skeleton() {
    local tree=$1 name
    mkdir -p "$tree"/{dev,proc,sys,run,tmp,host,out,in,export,mnt,root,etc/libibverbs.d,var/lib/nfs/rpc_pipefs} \
        "$tree"/usr/{bin,sbin,lib64,local/bin} "$tree/$lib"
    for name in bin sbin lib lib64; do
        ln -s "usr/$name" "$tree/$name"
    done
    ln -s /run "$tree/var/run"
    cp "$cache/root/etc/"{netconfig,services,protocols} "$tree/etc/"
    echo "driver rxe" >"$tree/etc/libibverbs.d/rxe.driver"
    chmod 0755 "$tree"
}

# found_program NAME TREE: a program of the packages, at its place.
found_program() {
    local name=$1 tree=$2 directory
    for directory in usr/bin usr/sbin; do
        [ -e "$cache/root/$directory/$name" ] || continue
        program "$cache/root/$directory/$name" "$tree" "/$directory/$name"
        return
    done
    echo "no program $name in the packages" >&2
}

# program FILE TREE PATH: a copy without symbols for debugging, and the libraries that it names.
program() {
    local file=$1 tree=$2 path=$3 needed
    mkdir -p "$tree${path%/*}"
    cp -L "$file" "$tree$path"
    [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || return 0
    strip --strip-debug "$tree$path" 2>/dev/null || true
    while read -r needed; do
        library "$needed" "$tree"
    done < <(LD_LIBRARY_PATH=$cache/root/$lib ldd "$file" 2>/dev/null |
        sed -nE 's/^.*[[:space:]](\/[^ ]+) \(0x[0-9a-f]+\)$/\1/p')
}

# library NAME TREE: by its path, or looked for; to the place where the loader looks.
library() {
    local name=$1 tree=$2 directory
    case $name in
        */ld-linux*) mkdir -p "$tree/usr/lib64" && cp -L "$name" "$tree/usr/lib64/" && return ;;
        /*) mkdir -p "$tree/$lib" && cp -L "$name" "$tree/$lib/" && return ;;
    esac
    for directory in "$cache/root/$lib" "/$lib" /lib/x86_64-linux-gnu; do
        [ -e "$directory/$name" ] || continue
        program "$directory/$name" "$tree" "/$lib/$name"
        return
    done
    echo "no library $name" >&2
}

# links TREE: what is not there as a program of its own comes from busybox; sh is dash.
links() {
    local tree=$1 name
    cp "$cache/root/usr/bin/busybox" "$tree/usr/bin/busybox"
    ln -s dash "$tree/usr/bin/sh"
    for name in modprobe depmod insmod lsmod rmmod; do
        ln -s ../bin/kmod "$tree/usr/sbin/$name"
    done
    for name in $("$tree/usr/bin/busybox" --list); do
        [ -e "$tree/usr/bin/$name" ] || [ -e "$tree/usr/sbin/$name" ] || ln -s busybox "$tree/usr/bin/$name"
    done
}

# archive TREE FILE: everything belongs to root.
archive() {
    (cd "$1" && find . | LC_ALL=C sort | "$cache/root/usr/bin/busybox" cpio -o -H newc -R 0:0 2>/dev/null) >"$2.new"
    mv "$2.new" "$2"
}
