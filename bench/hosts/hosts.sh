#!/bin/bash
# Hosts in network namespaces that Open MPI takes for real ones: each has its own host name, one interface on a common
# switch, no default route, and a name that leads to 127.0.1.1, as Debian's installer leaves it.
#
#   hosts.sh up COUNT                      make hosts NAME1 to NAMECOUNT
#   hosts.sh down                          remove them, and put the limits of the neighbour table back
#   hosts.sh enter HOST PROGRAM...         run a program on one of them
#   hosts.sh rsh HOST WORDS...             the same, as ssh would: the words are joined and read by a shell
#   hosts.sh mpirun COUNT PROGRAM...       start ranks on each of the first COUNT hosts, from the first
#
# Settings come from the environment: HOSTS_NAME (default pshost), HOSTS_FAMILY (4, 6, or 64 for both; 0 leaves link-local addresses
# only), HOSTS_MTU, HOSTS_SECOND=1 (a second interface on a network of its own), HOSTS_VLAN=1 (addresses on a VLAN of the interface),
# HOSTS_ULFM=FOLDER (mpirun is Open MPI 5's there, with --with-ft ulfm; more than a few concurrent starts hang in its launcher, so all start at once),
# HOSTS_TIMEOUT (seconds that mpirun may take, default 300), HOSTS_RANKS (ranks on each host, default 1), HOSTS_LOCAL_ADDRESS=1 (docker0 with the same address on every host).
#
# Nothing outside of the namespaces is touched but the neighbour table's limits, which all namespaces of a kernel share: 100 hosts that
# know each other are 9900 entries, and the kernel's default limit is 1024. Needs root; ends with 77 where namespaces are not permitted.
set -euo pipefail

name=${HOSTS_NAME:-pshost}
family=${HOSTS_FAMILY:-4}
states=/run/probe_sync_hosts
state=$states/$name
switch=$name-switch
limits=(net.ipv4.neigh.default net.ipv6.neigh.default)

die() { echo "hosts.sh: $*" >&2; exit 1; }
skip() { echo "hosts.sh: network namespaces are not permitted here: $*" >&2; exit 77; }
usage() { sed -n '5,9s/^# *//p' "$0" >&2; exit 2; }
count_of() { [[ ${1:-} =~ ^[1-9][0-9]{0,2}$ ]] || die "COUNT is 1 to 999, not \"${1:-}\""; }

address4() { echo "10.78.$(($1 / 250)).$(($1 % 250 + 1))"; }
address6() { printf 'fd78::%x' "$1"; }

# The addresses by which host $1 is known to others, one per line.
addresses() {
    case $family in *4*) address4 "$1" ;; esac
    case $family in *6*) address6 "$1" ;; esac
}

# Lines for `ip -batch` in host $1, which is one of $2.
configure() {
    local host=$name$1 device=eth0
    echo "link set lo up"
    echo "link set eth0 mtu ${HOSTS_MTU:-1500} up"
    if [[ ${HOSTS_VLAN:-} ]]; then
        echo "link add link eth0 name eth0.78 type vlan id 78"
        echo "link set eth0.78 up"
        device=eth0.78
    fi
    case $family in *4*) echo "address add $(address4 "$1")/16 dev $device" ;; esac
    case $family in *6*) echo "address add $(address6 "$1")/64 dev $device nodad" ;; esac
    if [[ ${HOSTS_SECOND:-} ]]; then
        echo "link set eth1 up"
        echo "address add 10.79.$(($1 / 250)).$(($1 % 250 + 1))/16 dev eth1"
    fi
    if [[ ${HOSTS_LOCAL_ADDRESS:-} ]]; then
        echo "link add docker0 type bridge"
        echo "link set docker0 up"
        echo "address add 172.17.0.1/16 dev docker0"
    fi
}

# What the hosts believe of each other: own name to 127.0.1.1, the others' to their addresses.
name_files() {
    local count=$1 index address
    for ((index = 1; index <= count; index++)); do
        for address in $(addresses "$index"); do echo "$address $name$index"; done
    done >"$state/names"
    for ((index = 1; index <= count; index++)); do
        mkdir -p "/etc/netns/$name$index"
        { printf '127.0.0.1 localhost\n127.0.1.1 %s%s\n' "$name" "$index"; grep -v " $name$index\$" "$state/names" || true; } \
            >"/etc/netns/$name$index/hosts"
    done
}

raise_limits() {
    local table part wanted
    # Other hosts of this kind may have raised them before: what they found counts.
    [[ -e $states/limits ]] || for table in "${limits[@]}"; do
        for part in 1 2 3; do echo "$table.gc_thresh$part=$(sysctl -n "$table.gc_thresh$part")"; done
    done >"$states/limits"
    # From the top down: the kernel wants them in order.
    for table in "${limits[@]}"; do
        for part in 3:65536 2:32768 1:8192; do
            wanted=${part#*:}
            [[ $(sysctl -n "$table.gc_thresh${part%:*}") -ge $wanted ]] ||
                sysctl -q -w "$table.gc_thresh${part%:*}=$wanted" ||
                echo "hosts.sh: cannot raise $table.gc_thresh${part%:*} to $wanted: more than 30 hosts may not reach each other" >&2
        done
    done
}

up() {
    local count=$1 host index
    count_of "$count"
    [[ ! -e $state ]] || die "$name hosts exist already (or a start was cut short): hosts.sh down removes them"
    ip netns add "$switch" 2>/dev/null || skip "ip netns add $switch failed; are you root?"
    mkdir -p "$state"
    echo "$count" >"$state/count"
    trap 'echo "hosts.sh: a step failed; removing what was made" >&2; down' ERR INT TERM
    raise_limits
    name_files "$count"
    ip -n "$switch" link add switch0 type bridge
    ip -n "$switch" link set switch0 up
    if [[ ${HOSTS_VLAN:-} ]] && ! ip -n "$switch" link add link switch0 name vlan0 type vlan id 78 2>/dev/null; then
        down
        skip "this kernel has no VLANs"
    fi
    [[ ! ${HOSTS_SECOND:-} ]] || { ip -n "$switch" link add switch1 type bridge; ip -n "$switch" link set switch1 up; }
    for ((index = 1; index <= count; index++)); do
        host=$name$index
        ip netns add "$host"
        # Duplicate address detection would delay the first packets by seconds.
        ip netns exec "$host" sysctl -q -w net.ipv6.conf.default.accept_dad=0
        ip -n "$switch" link add "port$index" type veth peer name eth0 netns "$host"
        ip -n "$switch" link set "port$index" master switch0 up
        if [[ ${HOSTS_SECOND:-} ]]; then
            ip -n "$switch" link add "second$index" type veth peer name eth1 netns "$host"
            ip -n "$switch" link set "second$index" master switch1 up
        fi
        configure "$index" | ip -n "$host" -batch -
    done
    trap - ERR INT TERM
}

down() {
    local host
    while read -r host _; do
        case $host in
            "$switch" | "$name"[0-9]*) ip netns delete "$host" ;;
        esac
    done < <(ip netns list)
    rm -rf "/etc/netns/$name"[0-9]*
    rm -rf "$state"
    # The last to go puts the limits back.
    if [[ -e $states/limits && -z $(find "$states" -mindepth 1 -type d) ]]; then
        while read -r setting; do sysctl -q -w "$setting" || true; done <"$states/limits"
        rm -f "$states/limits"
    fi
}

enter() {
    local host=$1
    shift
    # `ip netns exec` lays /etc/netns/HOST over /etc; the host name needs a namespace of its own.
    exec ip netns exec "$host" unshare --uts -- sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
}

# Daemons are started a few at a time: a hundred at once would share a few cores here.
start() {
    local count=$1 ranks=${HOSTS_RANKS:-1} list
    shift
    count_of "$count"
    [[ $ranks =~ ^[1-9][0-9]{0,2}$ ]] || die "HOSTS_RANKS is 1 to 999, not \"$ranks\""
    [[ -e $state/count && $(cat "$state/count") -ge $count ]] || die "there are no $count hosts; hosts.sh up $count makes them"
    list=$(for ((index = 1; index <= count; index++)); do echo -n "$name$index:$ranks,"; done)
    local -x OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOSTS_NAME=$name
    if [[ ${HOSTS_ULFM:-} ]]; then
        local -x PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 LD_LIBRARY_PATH=$HOSTS_ULFM/lib
        enter "${name}1" "$HOSTS_ULFM/bin/mpirun" --timeout "${HOSTS_TIMEOUT:-300}" --with-ft ulfm -n "$((count * ranks))" -H "${list%,}" \
            --map-by slot --bind-to none --prtemca plm_ssh_agent "$(readlink -f "$0") rsh" --prtemca plm_ssh_no_tree_spawn 1 \
            --prtemca plm_ssh_pass_libpath "$HOSTS_ULFM/lib" --mca pml ob1 --mca btl tcp,sm,self -x HOSTS_NAME -x LD_LIBRARY_PATH "$@"
    fi
    enter "${name}1" mpirun --timeout "${HOSTS_TIMEOUT:-300}" -n "$((count * ranks))" -H "${list%,}" --map-by slot --bind-to none \
        --mca plm_rsh_agent "$(readlink -f "$0") rsh" --mca plm_rsh_no_tree_spawn 1 --mca plm_rsh_num_concurrent 8 \
        --mca btl vader,tcp,self -x HOSTS_NAME "$@"
}

case ${1:-} in
    up) up "${2:-}" ;;
    down) down ;;
    enter) [[ $# -ge 3 ]] || usage; shift; enter "$@" ;;
    rsh) [[ $# -ge 3 ]] || usage; host=$2; shift 2; enter "$host" sh -c "$*" ;;
    mpirun) [[ $# -ge 3 ]] || usage; shift; start "$@" ;;
    *) usage ;;
esac
