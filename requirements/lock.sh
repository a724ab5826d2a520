#!/bin/sh
# Writes lock.txt: one exact version of everything that pyproject.toml asks for, all extras, for Python 3.11 and later
# on any platform. PyTorch and what its GPU builds bring (its own release pins them) stay out; see torch.txt.
set -eu
cd "$(dirname "$0")/.."

{
    echo "# Exact versions for every extra, used as constraints. Made by \`make lock\`; PyTorch stands in torch.txt."
    "$1" pip compile --quiet --universal --python-version 3.11 --all-extras --upgrade --no-header --no-annotate \
        --constraint requirements/torch.txt pyproject.toml | grep -Ev '^(torch|triton|nvidia-[^=]*|cuda-[^=]*)=='
} >requirements/lock.new
mv requirements/lock.new requirements/lock.txt
