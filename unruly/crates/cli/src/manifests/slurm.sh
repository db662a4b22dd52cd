#!/bin/bash
# Load generators on {count} nodes of a Slurm cluster. The program unruly is on every node, in one place.
#
#   unruly hosts slurm -n {count} > measure.sh
#   sbatch measure.sh URL -r 2000 -d 60s
#SBATCH --job-name=unruly
#SBATCH --nodes={count}
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=01:00:00
set -euo pipefail
url=${1:?usage: sbatch measure.sh URL OPTION...}
shift
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
from=()
# Each node is a step of this job, whose standard input and output are those of srun.
for node in $nodes; do
  from+=(--from "command:srun --overlap --nodes=1 --ntasks=1 --nodelist=$node")
done
exec unruly drive "$url" "$@" "${from[@]}"
