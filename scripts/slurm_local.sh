#!/usr/bin/env bash
# A real Slurm on this one machine, without systemd: for a container, a virtual machine, or CI.
#   bash scripts/slurm_local.sh start [NODES]   installs what is missing, starts NODES (2) nodes
#   bash scripts/slurm_local.sh kill NODE       what a power cut does to node1, node2, ...
#   bash scripts/slurm_local.sh revive NODE     starts it again
#   bash scripts/slurm_local.sh stop            stops everything and removes its files
# Needs root. A node is a PID namespace with a share of the cores; the system's own Slurm and
# munge are not touched. Files are in SLURM_LOCAL (/tmp/slurm-local), ports start at SLURM_LOCAL_PORT.
set -euo pipefail
home=${SLURM_LOCAL:-/tmp/slurm-local}
port=${SLURM_LOCAL_PORT:-17000}
config=$home/slurm.conf
export SLURM_CONF=$config PATH=$PATH:/usr/sbin:/sbin

fail() { echo "slurm_local.sh: $*" >&2; exit 1; }

check() {
  [ "$(id -u)" = 0 ] || fail "only root can start Slurm's daemons"
  [ ! -e "$home" ] || fail "$home exists, so it is running already: stop it first"
  unshare --pid --fork true 2>/dev/null || fail "this container may not make PID namespaces"
  command -v slurmctld slurmd munged > /dev/null && return
  apt-get update -q && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends slurmctld slurmd munge
}

write_config() {
  local nodes=$1 host cores memory
  host=$(hostname -s)
  cores=$(($(nproc) / nodes > 1 ? $(nproc) / nodes : 1))
  memory=$(awk -v nodes="$nodes" '/MemTotal/ {print int($2 / 1024 * 0.9 / nodes)}' /proc/meminfo)
  mkdir -p "$home"/state
  chmod 755 "$home"
  cat > "$config" <<CONF
ClusterName=local
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job waits until credentials of its first start have expired: seconds, not two minutes.
AuthInfo=socket=$home/munge.socket,cred_expire=5
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool-%n
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd-%n.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/%n.log
SlurmctldTimeout=10
# A node that has not answered for this long is down, and its jobs are requeued.
SlurmdTimeout=10
ReturnToService=2
JobRequeue=1
KillWait=5
MpiDefault=none
CONF
  for n in $(seq "$nodes"); do
    mkdir -p "$home/spool-node$n"
    echo "NodeName=node$n NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + n))" \
      "CPUs=$cores RealMemory=$memory State=UNKNOWN"
  done >> "$config"
  echo "PartitionName=all Nodes=node[1-$nodes] Default=YES MaxTime=INFINITE State=UP" >> "$config"
}

start_munge() {
  (umask 077; head -c 1024 /dev/urandom > "$home/munge.key")
  munged --key-file="$home/munge.key" --socket="$home/munge.socket" --pid-file="$home/munge.pid" \
    --log-file="$home/munge.log" --seed-file="$home/munge.seed" > "$home/munge.out" 2>&1 ||
    fail "$(cat "$home/munge.out")"
}

start_node() {
  # bash is the first process of the namespace, since it reaps what jobs leave behind.
  setsid unshare --pid --fork --kill-child --mount-proc \
    bash -c 'slurmd -D -N "$0" -f "$1" & wait' "$1" "$config" < /dev/null > "$home/$1.out" 2>&1 &
  echo $! > "$home/node-$1.pid"
}

start() {
  check
  write_config "$1"
  trap stop ERR EXIT
  start_munge
  slurmctld -f "$config"
  for n in $(seq "$1"); do start_node "node$n"; done
  for _ in $(seq 60); do
    [ "$(sinfo -h -N -t idle -o %N 2> /dev/null | wc -l)" -ge "$1" ] && break
    sleep 1
  done
  [ "$(sinfo -h -N -t idle -o %N | wc -l)" -ge "$1" ] ||
    fail "nodes do not come up: $(tail -n 5 "$home"/slurmctld.log "$home"/node*.log)"
  trap - ERR EXIT
  sinfo -N
  echo "export SLURM_CONF=$config"
}

# Everything in a namespace dies with its first process, at once and without a word to anybody.
kill_node() {
  local file=$home/node-$1.pid
  [ -f "$file" ] || fail "no node $1 is running"
  kill -KILL "$(cat "$file")" || true
  rm -f "$file"
}

stop() {
  local file pid
  for file in "$home"/node-*.pid; do [ -f "$file" ] && kill -KILL "$(cat "$file")" || true; done
  for file in "$home"/slurmctld.pid "$home"/munge.pid; do
    [ -f "$file" ] || continue
    pid=$(cat "$file")
    kill "$pid" 2> /dev/null || continue
    for _ in $(seq 50); do kill -0 "$pid" 2> /dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2> /dev/null || true
  done
  rm -rf "$home"
}

case "${1:-}" in
  start) start "${2:-2}" ;;
  kill) kill_node "${2:?which node?}" ;;
  revive) start_node "${2:?which node?}" ;;
  stop) stop ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
