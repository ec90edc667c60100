# shellcheck shell=bash
# The kernel of the guests and its modules, and siw, which Debian's kernel lacks and its sources have. Sourced by tests/vm/run.
#
# The default kernel is that of Debian's release on this host; $release, such as 6.12, asks for another, which the backports of
# the release have.
#
#   $cache/kernel-RELEASE-KEY/     what this script makes of one kernel: version, vmlinuz, modules.cpio; siw.cpio when asked for

readonly kernel_modules=(
    crc32_generic crc32_pclmul crc32c_generic libcrc32c dummy veth sch_netem sch_prio cls_u32
    virtio_pci virtio_net virtio_console 9pnet_virtio 9p
    rdma_rxe ib_uverbs rdma_ucm iw_cm rpcrdma nfsd nfs nfsv3 nfsv4
)

# kernel_image: $kernels is the directory.
kernel_image() {
    local tree=$cache/kernel-tree version
    kernels=$cache/kernel-${release:-default}-$(sha256sum "$vm/kernel.sh" | head -c 12)
    [ -e "$kernels" ] && touch "$kernels" && return
    echo "vm: making the kernel of the guests" >&2
    find "$cache" -maxdepth 1 -name 'kernel-*' -mtime +7 -exec rm -rf {} +
    rm -rf "$tree" "$kernels.new"
    kernel_archive
    version=$(newest_kernel)
    extract "$tree" "linux-image-$version"
    archive_options=()
    mkdir -p "$kernels.new" "$tree/image/usr/lib"
    ln -s usr/lib "$tree/image/lib"
    unpacked_kernel "$tree/boot/vmlinuz-$version" >"$kernels.new/vmlinuz"
    modules "$version" "$tree" "$tree/image"
    rm "$tree/image/lib"
    archive "$tree/image" "$kernels.new/modules.cpio"
    echo "$version" >"$kernels.new/version"
    mv "$kernels.new" "$kernels"
    rm -rf "$tree"
}

# newest_kernel: its version, as the archive has it; nothing if it has none.
newest_kernel() {
    { apt-cache "${archive_options[@]}" depends linux-image-amd64 2>/dev/null || true; } |
        sed -nE 's/^ *Depends: linux-image-([0-9][^ ]*)$/\1/p'
}

# kernel_archive: $archive_options are those of the archive that has the kernel: of this host, or of the backports.
kernel_archive() {
    local own=$cache/backports site newest
    archive_options=()
    newest=$(newest_kernel)
    [[ -z $release || $newest == "$release."* ]] && [ -n "$newest" ] && return
    [ -n "$release" ] || unavailable "apt knows no linux-image-amd64"
    site=$(apt-get indextargets 'Label: Debian' --format '$(REPO_URI)' | head -n 1)
    mkdir -p "$own"/{lists,cache}/partial "$own/cache/archives/partial"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${site:-http://deb.debian.org/debian/} \
$(. /etc/os-release && echo "$VERSION_CODENAME")-backports main" >"$own/sources.list"
    archive_options=(-o "Dir::State::Lists=$own/lists" -o "Dir::Cache=$own/cache" -o "Dir::Etc::SourceList=$own/sources.list"
        -o Dir::Etc::SourceParts=/dev/null)
    apt-get "${archive_options[@]}" -q update >"$cache/download.log" 2>&1 ||
        { tail -n 5 "$cache/download.log" && unavailable "apt-get cannot read the backports"; }
    [[ $(newest_kernel) == "$release."* ]] ||
        unavailable "there is no Linux $release: the release has ${newest:-none}, its backports $(newest_kernel)"
}

# modules VERSION TREE IMAGE: the modules of the tree and those they need.
modules() {
    local version=$1 tree=$2 image=$3 module place=$3/usr/lib/modules/$1
    mkdir -p "$place"
    kmod depmod -b "$tree" "$version"
    for module in "${kernel_modules[@]}"; do
        kmod modprobe -d "$tree" -S "$version" --ignore-install --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u | while read -r module; do
        case $module in
            *.xz) xz --decompress --stdout "$module" >"$place/$(basename "$module" .xz)" ;;
            *) cp "$module" "$place/" ;;
        esac
    done
    cp "$tree/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} "$place/"
    kmod depmod -b "$image" "$version"
}

# kmod NAME ARGUMENT...: depmod or modprobe, by the name it is called.
kmod() {
    (LD_LIBRARY_PATH=$cache/root/$lib exec -a "$1" "$cache/root/usr/bin/kmod" "${@:2}")
}

# unpacked_kernel FILE: the kernel in it, which an emulated processor takes seconds to unpack. Without xz, or if it is packed
# otherwise, it is left to that.
unpacked_kernel() {
    local start
    start=$(LC_ALL=C grep -aboP -m 1 '\xfd7zXZ\x00' "$1" | head -n 1 | cut -d : -f 1) || true
    if [ -z "$start" ] || ! command -v xz >/dev/null; then
        cat "$1"
    else
        xz --decompress --single-stream < <(tail -c "+$((start + 1))" "$1")
    fi
}

# siw_image: $kernels/siw.cpio has the module, built for this kernel, and the library that programs find the device by.
siw_image() {
    local tree=$cache/siw-tree image version
    [ -e "$kernels/siw.cpio" ] && return
    image=$tree/image version=$(cat "$kernels/version")
    echo "vm: building siw for Linux $version" >&2
    rm -rf "$tree"
    build_siw "$tree" "$version"
    mkdir -p "$image/usr/lib/modules/$version" "$image/etc/libibverbs.d"
    strip --strip-debug "$tree/siw/siw.ko" 2>/dev/null || true
    cp "$tree/siw/siw.ko" "$image/usr/lib/modules/$version/"
    library libibverbs/libsiw-rdmav34.so "$image"
    echo "driver siw" >"$image/etc/libibverbs.d/siw.driver"
    archive "$image" "$kernels/siw.cpio"
    rm -rf "$tree"
}

# build_siw TREE VERSION: $TREE/siw/siw.ko, for the kernel of this version.
build_siw() {
    local tree=$1 version=$2 headers=linux-headers-$2 compiler packages
    compiler=$(siw_compiler)
    [ -n "$compiler" ] || unavailable "siw is built with make, gcc and xz; on Debian: apt-get install make gcc xz-utils"
    extract "$tree" libelf1
    kernel_archive
    mapfile -t packages < <(apt-cache "${archive_options[@]}" depends "$headers" 2>/dev/null |
        sed -nE 's/^ *Depends: (linux-(headers-.*-common|kbuild-.*))$/\1/p')
    [ ${#packages[@]} -gt 0 ] || unavailable "the archive has no $headers any more; without $kernels a newer kernel is taken"
    extract "$tree" "$headers" "${packages[@]}"
    siw_source "$tree" "linux-source-$(cut -d . -f 1,2 <<<"$version")" \
        "$(apt-cache "${archive_options[@]}" show "$headers" | sed -n '/^Version: /{s///p;q}')"
    archive_options=()
    # What Debian writes there is where the packages would be installed.
    sed -i "s,^include /usr/src/,include $tree/usr/src/," "$tree/usr/src/$headers/Makefile"
    LD_LIBRARY_PATH=$tree/$lib make -C "$tree/usr/src/$headers" "M=$tree/siw" "CC=$compiler" \
        CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$cache/siw.log" 2>&1 ||
        { tail -n 20 "$cache/siw.log" && unavailable "siw cannot be built for Linux $version"; }
}

# siw_compiler: that of Debian's kernel if it is there, else any; nothing without it, or without what else is needed.
siw_compiler() {
    command -v make >/dev/null && command -v xz >/dev/null || return 0
    command -v gcc-12 || command -v gcc || true
}

# siw_source TREE PACKAGE VERSION: $TREE/siw has the module's sources out of the package of the kernel's.
siw_source() {
    rm -rf "$cache/debs"
    fetch "$cache/debs" "$2=$3"
    mkdir -p "$1/siw"
    dpkg-deb --fsys-tarfile "$cache/debs/"*.deb | tar -xO "./usr/src/$2.tar.xz" | xz --decompress |
        tar -x --strip-components 5 -C "$1/siw" "$2/drivers/infiniband/sw/siw"
    rm -rf "$cache/debs"
}
