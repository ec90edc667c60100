# shellcheck shell=sh
# The test client with NFS-Ganesha: $RPCRDMA_TEST_NFS says which. Sourced by scenarios.
ganesha_server
verbs_nfs --ignored --test-threads=1 || { tail -n 20 /run/ganesha.log && exit 1; }
