#!/bin/sh
# One family on a GPU, in some minutes: `run.sh fish_speech full` or `run.sh qwen3_tts 1.7b`. What holds on a CPU is held
# to there as well, then come the figures of the released size with random weights. Runs from the source tree; needs
# PyTorch with Triton, NumPy, safetensors, pydantic.
set -eu
family=$1 size=$2
cd "$(dirname "$0")/../.."
mkdir -p build/gpu
ln -sfn ../.. build/gpu/speechmill
export PYTHONPATH="$PWD/build/gpu" PYTHONUNBUFFERED=1
python3 tests/gpu/checks.py "$family" "$size"
python3 -m speechmill.models.measure "$family" --size "$size" --device cuda --batches "${BATCHES:-1,8,64}"
