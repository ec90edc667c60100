# shellcheck shell=bash
# Debian packages, unpacked into the cache and never installed. Sourced by tests/vm/run.
#
#   $cache/root             the files of all packages, with /bin, /sbin and /lib in /usr
#   $cache/packages/NAME    the files of a package that is there

# What the host lends instead: programs of the host are made for its C library.
readonly lent=" libc6 libgcc-s1 libcrypt1 libc-bin "

# unpacked PACKAGE...: the packages and the libraries that they depend on are in $cache/root.
unpacked() {
    local name new=()
    command -v apt-get >/dev/null || unavailable "Debian's packages need apt-get"
    while read -r name; do
        [ -e "$cache/packages/$name" ] || new+=("$name")
    done < <(with_libraries "$@")
    [ ${#new[@]} -eq 0 ] || download "${new[@]}"
}

# with_libraries PACKAGE...: these, the libraries they need, and those that the libraries need.
with_libraries() {
    local found=" $* " level=("$@") next name
    while [ ${#level[@]} -gt 0 ]; do
        next=()
        while read -r name; do
            case "$found$lent" in *" $name "*) continue ;; esac
            found+="$name "
            next+=("$name")
        done < <(apt-cache depends -i "${level[@]}" |
            sed -nE 's/^[ |]*(Pre)?Depends: (lib[^ ]*)$/\2/p' | sort -u)
        level=("${next[@]}")
    done
    tr -s ' ' '\n' <<<"$found" | sed '/^$/d'
}

# download PACKAGE...: fetched and unpacked.
download() {
    local debs=$cache/debs deb name
    rm -rf "$debs"
    fetch "$debs" "$@"
    mkdir -p "$cache/packages"
    for deb in "$debs"/*.deb; do
        name=${deb##*/}
        unpack "$deb" "$cache/root"
        dpkg-deb --fsys-tarfile "$deb" | tar -t >"$cache/packages/${name%%_*}"
    done
    rm -rf "$debs"
}

# extract TREE PACKAGE...: the files of these packages alone, at a place of their own.
extract() {
    local tree=$1 debs=$cache/debs deb
    rm -rf "$debs"
    fetch "$debs" "${@:2}"
    for deb in "$debs"/*.deb; do
        unpack "$deb" "$tree"
    done
    rm -rf "$debs"
}

# unpack FILE TREE: the files of a package.
unpack() {
    local name
    mkdir -p "$2"/usr/{bin,sbin,lib,lib64}
    for name in bin sbin lib lib64; do
        ln -sfn "usr/$name" "$2/$name"
    done
    dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"
}

# For apt: none, while packages come from the archive that this host uses.
archive_options=()

# fetch DIRECTORY PACKAGE...: the packages as files.
fetch() {
    mkdir -p "$1"
    (cd "$1" && apt-get "${archive_options[@]}" download -q "${@:2}") >"$cache/download.log" 2>&1 || {
        tail -n 5 "$cache/download.log"
        unavailable "apt-get cannot download all of: ${*:2}"
    }
}
