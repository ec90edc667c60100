#!/usr/bin/env bash
# Builds NFS-Ganesha 6.5 on ntirpc 6.3, with RPC-over-RDMA and the file system VFS, from Debian's sources. Prints where a file of it is.
#
#   tests/vm/ganesha/build.sh patched|unpatched FILE     FILE is ganesha.nfsd or libfsalvfs.so
#
# `unpatched` has soft-roce.patch, without which it does not run on soft-RoCE; `patched` has all patches of this directory. The first
# call downloads 2.5 MB and takes some 50 s on two processors; the result is kept in the cache of the emulated machine until this
# script or a patch changes.
#
# Exits with 75 after saying what is missing.
set -euo pipefail
shopt -s inherit_errexit
here=$(cd "$(dirname "$0")" && pwd)
readonly missing=75 ganesha=6.5 ntirpc=6.3 suite=trixie
vm=${RPCRDMA_VM_CACHE:-${CARGO_TARGET_DIR:-$here/../../../target}/vm}
vm=$(mkdir -p "$vm/ganesha" && cd "$vm/ganesha" && pwd)

unavailable() {
    echo "ganesha: $*" >&2
    exit "$missing"
}

# What it is built with, and what it is linked with: COMMAND:PACKAGE, HEADER:PACKAGE.
readonly commands=(gcc:gcc make:make cmake:cmake bison:bison flex:flex patch:patch)
readonly headers=(
    infiniband/verbs.h:libibverbs-dev rdma/rdma_cma.h:librdmacm-dev urcu-bp.h:liburcu-dev
    uuid/uuid.h:uuid-dev blkid/blkid.h:libblkid-dev sys/acl.h:libacl1-dev
)

# lacking: the packages that this host has not.
lacking() {
    local pair
    for pair in "${commands[@]}"; do
        command -v "${pair%%:*}" >/dev/null || echo "${pair#*:}"
    done
    command -v gcc >/dev/null || return 0
    for pair in "${headers[@]}"; do
        echo "#include <${pair%%:*}>" | gcc -E -xc - >/dev/null 2>&1 || echo "${pair#*:}"
    done
}

# archive_of PACKAGE VERSION: the path of its source. apt-get checks its signature; its configuration and lists are not the system's.
archive_of() {
    local package=$1 version=$2 apt=$vm/apt options found keys=/usr/share/keyrings/debian-archive-keyring.gpg
    found=$vm/${package}_$version.orig.tar.gz
    [ ! -e "$found" ] || { echo "$found" && return; }
    command -v apt-get >/dev/null || unavailable "the source of $package comes by apt-get"
    [ -e "$keys" ] || unavailable "no $keys; on Debian: apt-get install debian-archive-keyring"
    rm -rf "$apt"
    mkdir -p "$apt"/{sources,lists/partial,archives/partial,found}
    echo "deb-src [signed-by=$keys] http://deb.debian.org/debian $suite main" >"$apt/sources/$suite.list"
    options=(-qq -o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$apt/sources"
        -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt" -o "APT::Sandbox::User=root")
    apt-get "${options[@]}" update >&2 || true
    # The revision of the package changes while the archive remains the same.
    version=$(apt-cache "${options[@]}" showsrc "$package" 2>/dev/null | sed -nE "s/^Version: ($version-.*)$/\1/p" | head -n 1)
    [ -n "$version" ] || unavailable "Debian's $suite has no $package $2, or cannot be reached"
    (cd "$apt/found" && apt-get "${options[@]}" source --download-only --tar-only --only-source "$package=$version" >&2) ||
        unavailable "apt-get cannot download the source of $package $version"
    mv "$apt/found/${found##*/}" "$found"
    rm -rf "$apt"
    echo "$found"
}

# built NAME PATCH...: the server with these patches is in $made.
built() {
    local name off=() patch log=$made.log
    name=$(archive_of nfs-ganesha "$ganesha")
    patch=$(archive_of ntirpc "$ntirpc")
    rm -rf "$made" && mkdir -p "$made/source"
    tar -xf "$name" -C "$made/source" --strip-components=1
    rm -rf "$made/source/src/libntirpc" && mkdir "$made/source/src/libntirpc"
    tar -xf "$patch" -C "$made/source/src/libntirpc" --strip-components=1
    for patch in "$@"; do
        patch -s -d "$made/source/src" -p1 <"$patch"
    done
    for name in GSS DBUS NFSIDMAP 9P NLM NFSACL3 RQUOTA UNWIND CAPS MONITORING LTTNG MAN_PAGE GUI_ADMIN_TOOLS ADMIN_TOOLS RADOS_RECOV \
        FSAL_{XFS,NULL,PROXY_V4,PROXY_V3,LUSTRE,LIZARDFS,KVSFS,CEPH,GPFS,GLUSTER,RGW,SAUNAFS,MEM}; do
        off+=("-DUSE_$name=OFF")
    done
    {
        # -lacl: a file for POSIX ACLs is compiled even where they are off, and is then linked with nothing.
        cmake -S "$made/source/src" -B "$made/build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS="-O1 -g0 -w" \
            -DCMAKE_C_STANDARD_LIBRARIES=-lacl -DALLOCATOR=libc -DCMAKE_INSTALL_PREFIX=/usr -DSYSCONFDIR=/etc \
            -DRPCBIND=OFF -DUSE_NFS_RDMA=ON -DUSE_RPC_RDMA=ON -DUSE_SYSTEM_NTIRPC=OFF -DUSE_FSAL_VFS=ON "${off[@]}" \
            -D_MSPAC_SUPPORT=OFF -DRADOS_URLS=OFF -DENABLE_VFS_POSIX_ACL=OFF &&
            make -C "$made/build" -j"$(nproc)"
    } >"$log" 2>&1 || { tail -n 20 "$log" >&2 && echo "ganesha: it does not compile; the whole log is $log" >&2 && exit 1; }
    rm -rf "$made/source"
    find "$made/build" -type f ! -name 'ganesha.nfsd' ! -name '*.so*' -delete
    : >"$made/done"
}

main() {
    local patches list lock
    case "${1:-} ${2:-}" in
        "patched "* | "unpatched "*) ;;
        *) sed -n '4s/^# *//p' "$0" >&2 && exit 2 ;;
    esac
    patches=("$here/soft-roce.patch")
    [ "$1" = unpatched ] || patches=("$here"/*.patch)
    made=$vm/$1-$(cat "$0" "${patches[@]}" | sha256sum | head -c 12)
    exec {lock}>"$vm/lock"
    flock "$lock"
    if [ ! -e "$made/done" ]; then
        list=$(lacking)
        [ -z "$list" ] || unavailable "missing:" $list "; as root on Debian: apt-get install" $list
        built "${patches[@]}"
    fi
    case $2 in
        ganesha.nfsd) echo "$made/build/ganesha.nfsd" ;;
        # Where the configuration says that the modules are.
        libfsalvfs.so) echo "$made/build/FSAL/FSAL_VFS/vfs/libfsalvfs.so:/usr/lib/ganesha/libfsalvfs.so" ;;
        *) echo "ganesha: there is no file $2" >&2 && exit 2 ;;
    esac
}

main "$@"
