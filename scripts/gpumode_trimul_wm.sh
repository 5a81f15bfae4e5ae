#!/usr/bin/env bash
# A search on GPUMode's TriMul, or on any other of its problems: the original K-Search's launcher, by its name and with
# its variables. Nothing in here is to be edited; arguments go to `ksearch run`.
#
#   export LLM_API_KEY=… MODEL_NAME=… BASE_URL=…
#   GPUMODE_TASK_DIR=reference-kernels/problems/bioml/trimul scripts/gpumode_trimul_wm.sh --dry-run
#
#   MODEL_NAME, BASE_URL     the model and its endpoint; the built-in rules, which need none, write no Python
#   LLM_API_KEY, API_KEY     its key; it goes into no command line
#   GPUMODE_TASK_DIR         the problem's folder, in a checkout of github.com/gpu-mode/reference-kernels (required)
#   GPUMODE_MODE             leaderboard, benchmark: the benchmarks are timed, the tests are held out for confirmation;
#                            test: the tests alone (default: leaderboard)
#   LANGUAGE                 triton and python are the same here: a submission is a Python file, whose kernels may be
#                            Triton's (default: triton); cuda
#   DEVICE                   cuda, cuda:1, cpu (default: cuda where there is a GPU)
#   MAX_OPT_ROUNDS           300
#   WM, WM_STAGNATION_WINDOW 1 and 5; WM=0 searches without the model's tree
#   ARTIFACTS_DIR            .ksearch-output-gpumode
#   RUN_NAME                 of the run's folder (default: made of task and time)
#   CONTINUE_FROM_SOLUTION   a source file, a run or its best folder
#   WORLD_MODEL_JSON         a run, or a world model's file
#   WANDB, WANDB_PROJECT     1: Weights & Biases is told of the run (extra wandb; key in WANDB_API_KEY)
# Not taken over: TARGET_GPU (kernels are for the device that they are timed on), GPUMODE_KEEP_TMP (every candidate is
# kept), KSEARCH_ROOT.
set -euo pipefail

fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ksearch=$root/.venv/bin/ksearch
[ -x "$ksearch" ] || ksearch=$(command -v ksearch) || fail "ksearch is not installed" "pip install -e $root"

[ -n "${GPUMODE_TASK_DIR:-}" ] || fail "GPUMODE_TASK_DIR is not set" \
  "name the problem's folder in a checkout of gpu-mode/reference-kernels: …/problems/bioml/trimul"
case ${GPUMODE_MODE:-leaderboard} in
  leaderboard | benchmark) task=gpumode:$GPUMODE_TASK_DIR ;;
  test) task=gpumode:$GPUMODE_TASK_DIR:test ;;
  *) fail "GPUMODE_MODE=$GPUMODE_MODE is not supported" "leaderboard, benchmark or test" ;;
esac
case ${LANGUAGE:-triton} in
  triton | python) language=python ;;
  *) language=$LANGUAGE ;;
esac
[ -z "${API_KEY:-}" ] || export KSEARCH_API_KEY=$API_KEY

source "$(dirname "${BASH_SOURCE[0]}")/original_variables"
search_arguments "$language" 300 .ksearch-output-gpumode 5
exec "$ksearch" run "$task" "${arguments[@]}" "$@"
