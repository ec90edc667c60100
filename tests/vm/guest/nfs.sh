# shellcheck shell=sh
# The kernel's NFS/RDMA server and client.

# kernel_nfs_server: /export for all clients, versions 3 and 4, on RDMA port 20049; MOUNT on port 20048. Reads and
# writes have at most $NFSD_BLOCK_MAX bytes; without, it depends on the memory: 128 KiB of 1 GiB, 256 KiB of 2 GiB.
kernel_nfs_server() {
    modprobe -a rpcrdma nfsd
    mounted /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
    rpc_pipefs
    rpc_bind
    mkdir -p /var/lib/nfs/sm /var/lib/nfs/v4recovery
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab
    echo '/export *(rw,fsid=0,no_root_squash,insecure,no_subtree_check)' >/etc/exports
    exportfs -ra
    rpc.mountd -p 20048
    [ -z "${NFSD_BLOCK_MAX:-}" ] || echo "$NFSD_BLOCK_MAX" >/proc/fs/nfsd/max_block_size
    echo "rdma 20049" >/proc/fs/nfsd/portlist
    echo 8 >/proc/fs/nfsd/threads
    echo Y >/proc/fs/nfsd/v4_end_grace
}

# ganesha_server: /export for all clients, version 3, as NFS-Ganesha's configuration in /in says. Its log is /run/ganesha.log.
ganesha_server() {
    mkdir -p /var/lib/nfs/ganesha /run/ganesha
    # It exports no file system of the type tmpfs.
    echo "export /export shmfs rw 0 0" >/etc/mtab
    ganesha.nfsd -F -L /run/ganesha.log -N NIV_EVENT -f /in/ganesha.conf -p /run/ganesha.pid &
    until_true 30 grep -q "NFS SERVER INITIALIZED" /run/ganesha.log || { tail -n 5 /run/ganesha.log && return 1; }
}

# nfs3_config FILE: writes the configuration of rpcrdma-nfs3 for this device. siw has no windows, and its Reads open their
# buffers: docs/security.md.
nfs3_config() {
    way=auto
    [ "$DEVICE" != siw ] || way=registration
    printf '[explicit]\nexposure = "%s"\n' "$way" >"$1"
}

# kernel_mount ADDRESS:PATH DIRECTORY [OPTIONS]: by version 3 over RDMA, from whatever serves at ports 20048 and 20049.
# The options come behind those and can overrule them.
kernel_mount() {
    modprobe -a rpcrdma nfs nfsv3
    rpc_pipefs
    mkdir -p "$2"
    mount.nfs "$1" "$2" -o "vers=3,proto=rdma,port=20049,nolock,mountproto=tcp,mountport=20048${3:+,$3}"
}

# kernel_mount4 ADDRESS:PATH DIRECTORY [OPTIONS]: by version 4.1; PATH is / for what has fsid=0.
kernel_mount4() {
    modprobe -a rpcrdma nfs nfsv4
    rpc_pipefs
    mkdir -p "$2"
    mount.nfs "$1" "$2" -o "vers=4.1,proto=rdma,port=20049${3:+,$3}"
}

# kernel_unmount DIRECTORY: without asking rpcbind for MOUNT, which umount.nfs does.
kernel_unmount() {
    busybox umount "$1"
}

mounted() {
    grep -q " $1 " /proc/mounts
}

rpc_pipefs() {
    mounted /var/lib/nfs/rpc_pipefs || mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
}

rpc_bind() {
    [ -S /run/rpcbind.sock ] && return
    mkdir -p /run/rpcbind
    rpcbind -f &
    until_true 10 test -S /run/rpcbind.sock
}
