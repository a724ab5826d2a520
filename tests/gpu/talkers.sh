#!/bin/sh
# Talkers on a GPU, in some minutes: the decode kernel against softmax, batch against alone, then the figures of the
# released sizes with random weights. Runs from the source tree; needs PyTorch with Triton, NumPy, safetensors, pydantic.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/gpu
ln -sfn ../.. build/gpu/speechmill
export PYTHONPATH="$PWD/build/gpu" PYTHONUNBUFFERED=1
python3 tests/gpu/talkers.py
python3 -m speechmill.models.measure fish_speech --size full --device cuda --batches "${BATCHES:-1,8,64}"
python3 -m speechmill.models.measure qwen3_tts --size 1.7b --device cuda --batches "${BATCHES:-1,8,64}"
