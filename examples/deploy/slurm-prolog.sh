#!/bin/bash
# Prolog of slurmd: starts a measurement on this node, next to the job. slurm.conf: Prolog=/etc/slurm/probe_sync-prolog.sh
# The run is in the job user's $HOME/probe_sync/JOB on the job's first node. A failure here never holds up the job.
set -u

nodes=${SLURM_JOB_NODELIST:-$(squeue --noheader --jobs "$SLURM_JOB_ID" --format %N)}
mapfile -t hosts < <(scontrol show hostnames "$nodes")
rank=-1
for index in "${!hosts[@]}"; do
    [ "${hosts[$index]}" = "${SLURMD_NODENAME:-$(hostname -s)}" ] && rank=$index
done
[ "$rank" -ge 0 ] && [ "${#hosts[@]}" -gt 1 ] || exit 0

home=$(getent passwd "$SLURM_JOB_USER" | cut -d: -f6)
export RANK=$rank WORLD_SIZE=${#hosts[@]} MASTER_ADDR=${hosts[0]} MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
setsid runuser -u "$SLURM_JOB_USER" -- probe_sync run --quiet --out "$home/probe_sync/$SLURM_JOB_ID" \
    < /dev/null > "/tmp/probe_sync.$SLURM_JOB_ID.log" 2>&1 &
echo $! > "/run/probe_sync.$SLURM_JOB_ID.pid"
exit 0
