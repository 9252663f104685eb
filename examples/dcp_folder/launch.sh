#!/usr/bin/env bash
# Starts train.py under torchrun from the newest checkpoint that is sound, and has its checkpoints sealed and kept
# while it runs. Usage: RANKS=2 launch.sh [arguments of train.py]
set -uo pipefail
python=${PYTHON:-python3}
checkpoints=(--kind dcp --pattern "out/step-{step}" --step-key step --run "${RUN:-demo}" --keep-last 2)

newest=$("$python" -m evertrain.integrations.adapter latest "${checkpoints[@]}")
case $? in
0) resume=(--resume "$newest") ;;
5) resume=() ;;    # none yet
*) exit 1 ;;       # there are some, but none is sound, or they cannot be read: not to be passed over in silence
esac
# It ends by itself, after a last look, when this process, which becomes torchrun, has ended.
"$python" -m evertrain.integrations.adapter watch "${checkpoints[@]}" --pid $$ --poll 1 --settle 1 &
exec "$python" -m torch.distributed.run --standalone --nproc-per-node "${RANKS:-2}" \
    "$(dirname "$0")/train.py" "${resume[@]}" "$@"
