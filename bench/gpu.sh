#!/usr/bin/env bash
# Check and measure backprobe on an accelerator: bash bench/gpu.sh OUT
#
# Writes the results to the folder OUT, as JSON and text, in at most 8 minutes. Needs Python 3.10 or later with torch
# and pytest, and no network. A package that is missing is looked for as a wheel in bench/wheels/ or in the folder that
# BACKPROBE_WHEELS names. BACKPROBE_GPU=cpu runs the same on the CPU, with small models;
# BACKPROBE_GPU_TIME_FACTOR=N makes the time limits N times as long.
set -u
out=${1:?usage: bash bench/gpu.sh OUT}
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
exec "$python" "$root/bench/gpu.py" "$out"
