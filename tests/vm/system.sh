# shellcheck shell=bash
# What a guest has beside the base image when systemd is its first process: whole packages, and what dpkg knows of them.
# Sourced by tests/vm/run.

# perl-base and init-system-helpers are for the scripts of packages, as debhelper writes them.
readonly system_packages=(systemd mount dpkg tar libc-bin perl-base init-system-helpers)
# Of each package without what is not read there.
readonly unread='^\./usr/share/(doc|man|locale|lintian|bug|zsh|bash-completion|info)/'

# system_image: $cache/system-KEY.cpio is what this script makes of the packages.
system_image() {
    local tree=$cache/tree name path packages
    system=$cache/system-$(cat "$vm/system.sh" "$vm/image.sh" | sha256sum | head -c 12).cpio
    [ -e "$system" ] && touch "$system" && return
    echo "vm: making the image with systemd" >&2
    unpacked "${system_packages[@]}"
    mapfile -t packages < <(with_libraries "${system_packages[@]}")
    rm -rf "$tree"
    mkdir -p "$tree"/{usr/bin,usr/sbin,usr/lib64,"$lib",var/lib/dpkg/info,var/lib/dpkg/updates,var/lib/dpkg/triggers,var/log,var/tmp,srv}
    for name in bin sbin lib lib64; do
        ln -s "usr/$name" "$tree/$name"
    done
    for name in "${packages[@]}"; do
        while read -r path; do
            whole_file "${path#.}" "$tree"
        done < <(grep -vE "$unread" "$cache/packages/$name" | sed 's,\\\\,\\,g') # tar writes \\ for \.
        known_to_dpkg "$name" "$tree"
    done
    # Lent by the host, which knows them better than the archive.
    for name in $lent; do
        [[ " ${packages[*]} " != *" $name "* ]] || continue
        dpkg-query --status "$name" >>"$tree/var/lib/dpkg/status"
        echo >>"$tree/var/lib/dpkg/status"
        dpkg-query --listfiles "$name" >"$tree/var/lib/dpkg/info/$(dpkg-query --show -f '${binary:Package}' "$name").list"
    done
    archive "$tree" "$system"
    rm -rf "$tree"
}

# whole_file PATH TREE: as it is in the packages; with the libraries that it needs, if it is a program.
whole_file() {
    local file=$cache/root$1 place=$2$1
    if [ -d "$file" ] && [ ! -L "$file" ]; then
        mkdir -p "$place"
    elif [ -x "$file" ] && [ ! -L "$file" ] && [ "$(head -c 4 "$file" | tail -c 3)" = ELF ]; then
        program "$file" "$2" "$1"
    elif [ ! -e "$place" ]; then
        mkdir -p "${place%/*}"
        cp -a "$file" "$place"
    fi
}

# known_to_dpkg PACKAGE TREE: what the archive says of it, and its files.
known_to_dpkg() {
    local name=$1 database=$2/var/lib/dpkg record list
    record=$(apt-cache show --no-all-versions "$name" | sed '/^$/q')
    list=$name
    ! grep -q '^Multi-Arch: same$' <<<"$record" || list=$name:amd64
    sed -E 's,^\.(/.*[^/])/?$,\1,; s,^\./$,/.,' "$cache/packages/$name" >"$database/info/$list.list"
    printf '%s\n' "$record" | sed '1a Status: install ok installed' |
        grep -vE '^(Filename|Size|MD5sum|SHA256|SHA1|Description-md5|Tag|APT-.*):' >>"$database/status"
    echo >>"$database/status"
}
