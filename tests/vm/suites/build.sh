#!/usr/bin/env bash
# Builds a suite for file systems that others wrote, from the registry of crates. Prints where its program is.
#
#   tests/vm/suites/build.sh pjdfstest|fsx
#
# It takes a minute on two processors; the result is kept in the cache of the emulated machine. Exits with 75 after saying
# what is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
readonly missing=75 name=${1?the name of a suite}
cache=${RPCRDMA_VM_CACHE:-${CARGO_TARGET_DIR:-$here/../../../target}/vm}
suites=$(mkdir -p "$cache/suites" && cd "$cache/suites" && pwd)

unavailable() {
    echo "suites: $*" >&2
    exit "$missing"
}

case $name in
    pjdfstest)
        version=0.2.2
        # It is linked with libacl.
        echo '#include <sys/acl.h>' | gcc -E -xc - >/dev/null 2>&1 || unavailable "gcc or libacl1-dev is missing"
        ;;
    fsx) version=0.3.2 ;;
    *) echo "no suite is named $name: pjdfstest or fsx" >&2 && exit 2 ;;
esac
exec 3>"$suites/lock"
flock 3
# Another target directory than that of the project: this is another workspace.
CARGO_TARGET_DIR=$suites/target cargo install --quiet --locked --root "$suites/$name-$version" --version "$version" "$name" >&2 ||
    unavailable "cargo cannot install $name $version"
echo "$suites/$name-$version/bin/$name"
