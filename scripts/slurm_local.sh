#!/usr/bin/env bash
# A real Slurm on this machine alone, without systemd: for a container, a virtual machine, or CI.
#   bash scripts/slurm_local.sh start [NODES]   installs what is missing, starts NODES (2) nodes
#   bash scripts/slurm_local.sh kill NODE       kills a node as a crash would: node1, node2, ...
#   bash scripts/slurm_local.sh revive NODE     starts it again
#   bash scripts/slurm_local.sh stop            stops everything and removes its files
# Needs root. Nodes are processes of this machine; each offers its share of the cores.
set -euo pipefail
home=/tmp/slurm-local
config=$home/slurm.conf
export SLURM_CONF=$config

install() {
  command -v slurmctld slurmd munged >/dev/null && return
  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q slurmctld slurmd munge
}

write_config() {
  local nodes=$1 host cores memory
  host=$(hostname -s)
  cores=$(( $(nproc) / nodes )); [ "$cores" -ge 1 ] || cores=1
  memory=$(awk '/MemTotal/ {print int($2 / 1024 * 0.9 / '"$nodes"')}' /proc/meminfo)
  mkdir -p "$home"/{state,spool}
  cat > "$config" <<CONF
ClusterName=local
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool/%n
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/%n.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/%n.log
SlurmctldTimeout=10
SlurmdTimeout=10
ReturnToService=2
JobRequeue=1
KillWait=5
MessageTimeout=30
CONF
  for n in $(seq "$nodes"); do
    echo "NodeName=node$n NodeHostname=$host NodeAddr=127.0.0.1 Port=$((17000 + n))" \
      "CPUs=$cores RealMemory=$memory State=UNKNOWN" >> "$config"
  done
  echo "PartitionName=all Nodes=node[1-$nodes] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO" >> "$config"
}

start() {
  install
  [ -f "$home/slurmctld.pid" ] && { echo "it is running already: stop it first" >&2; exit 1; }
  write_config "${1:-2}"
  [ -f /etc/munge/munge.key ] || { dd if=/dev/urandom of=/etc/munge/munge.key bs=1 count=1024 status=none; }
  mkdir -p /run/munge /var/log/munge /var/lib/munge
  chown -R munge: /etc/munge /run/munge /var/log/munge /var/lib/munge
  chmod 400 /etc/munge/munge.key
  chmod 755 /run/munge
  pgrep -x munged >/dev/null || runuser -u munge -- munged
  slurmctld -f "$config"
  for n in $(seq "${1:-2}"); do slurmd -N "node$n" -f "$config"; done
  for _ in $(seq 30); do
    [ "$(sinfo -h -N -t idle -o %N | wc -l)" -ge "${1:-2}" ] && break
    sleep 1
  done
  sinfo -N
  echo "export SLURM_CONF=$config"
}

stop() {
  for file in "$home"/*.pid; do [ -f "$file" ] && kill "$(cat "$file")" 2>/dev/null || true; done
  sleep 1
  rm -rf "$home"
}

kill_node() {
  local jobs=() steps=() process parent
  for process in /proc/[0-9]*; do
    grep -qz "^SLURMD_NODENAME=$1\$" "$process/environ" 2>/dev/null || continue
    jobs+=("${process#/proc/}")
    parent=$(awk '/^PPid/ {print $2}' "$process/status")
    [ "$(cat "/proc/$parent/comm")" = slurmstepd ] && steps+=("$parent")
  done
  # What would report the end of a job dies before the job: a crash tells nobody.
  kill -KILL "$(cat "$home/$1.pid")" "${steps[@]}" "${jobs[@]}" 2>/dev/null || true
  rm -f "$home/$1.pid"
}

case "${1:-}" in
  start) start "${2:-2}" ;;
  kill) kill_node "$2" ;;
  revive) slurmd -N "$2" -f "$config" ;;
  stop) stop ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
