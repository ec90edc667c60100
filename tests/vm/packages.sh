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
            sed -nE 's/^[ |]*(Pre)?Depends: ((lib|linux-image-[0-9])[^ ]*)$/\2/p' | sort -u)
        level=("${next[@]}")
    done
    tr -s ' ' '\n' <<<"$found" | sed '/^$/d'
}

# download PACKAGE...: fetched and unpacked.
download() {
    local debs=$cache/debs deb name
    rm -rf "$debs"
    mkdir -p "$debs" "$cache/packages" "$cache/root"/usr/{bin,sbin,lib,lib64}
    for name in bin sbin lib lib64; do
        ln -sfn "usr/$name" "$cache/root/$name"
    done
    (cd "$debs" && apt-get download -q "$@") >"$cache/download.log" 2>&1 || {
        tail -n 5 "$cache/download.log"
        unavailable "apt-get cannot download all of: $*"
    }
    for deb in "$debs"/*.deb; do
        name=${deb##*/}
        dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$cache/root"
        dpkg-deb --fsys-tarfile "$deb" | tar -t >"$cache/packages/${name%%_*}"
    done
    rm -rf "$debs"
}
