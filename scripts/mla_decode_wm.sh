#!/usr/bin/env bash
# A search on FlashInfer-Bench's paged MLA decode, or on any other of its definitions: the original K-Search's launcher,
# by its name and with its variables. Nothing in here is to be edited; arguments go to `ksearch run`.
#
#   export LLM_API_KEY=… MODEL_NAME=… BASE_URL=…
#   DATASET_ROOT=flashinfer-trace scripts/mla_decode_wm.sh --dry-run
#
#   MODEL_NAME, BASE_URL     the model and its endpoint; without them the built-in rules write
#   LLM_API_KEY, API_KEY     its key; it goes into no command line
#   DATASET_ROOT             a FlashInfer-Bench dataset: definitions/, workloads/, … (default: FIB_DATASET_PATH)
#   DEFINITION               mla_paged_decode_h16_ckv512_kpe64_ps1
#   FEEDBACK_WORKLOADS       ids of workloads, with blanks (default: five, drawn with seed 0; the original pins five)
#   LANGUAGE                 cuda; triton, python, cpp
#   DEVICE                   cuda, cuda:1, cpu (default: cuda where there is a GPU)
#   MAX_OPT_ROUNDS           20
#   WM, WM_STAGNATION_WINDOW 1 and 7; WM=0 searches without the model's tree
#   ARTIFACTS_DIR            .ksearch-output-mla
#   RUN_NAME                 of the run's folder (default: made of task and time)
#   CONTINUE_FROM_SOLUTION   a source file, a run or its best folder (the original's seed solution is not public)
#   WORLD_MODEL_JSON         a run, or a world model's file
#   WANDB, WANDB_PROJECT     1: Weights & Biases is told of the run (extra wandb; key in WANDB_API_KEY)
# Not taken over: TARGET_GPU (kernels are for the device that they are timed on), KSEARCH_ROOT, and
# BASELINE_SOLUTION, which counts in the final evaluation: scripts/bench_flashinfer --baseline-solution.
set -euo pipefail

fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ksearch=$root/.venv/bin/ksearch
[ -x "$ksearch" ] || ksearch=$(command -v ksearch) || fail "ksearch is not installed" "pip install -e $root"

dataset=${DATASET_ROOT:-${FIB_DATASET_PATH:-}}
[ -n "$dataset" ] || fail "DATASET_ROOT is not set" \
  "name a FlashInfer-Bench dataset, a folder with definitions/ and workloads/"
[ -z "${BASELINE_SOLUTION:-}" ] || printf 'note: BASELINE_SOLUTION: for the final evaluation, scripts/bench_flashinfer\n' >&2
[ -z "${API_KEY:-}" ] || export KSEARCH_API_KEY=$API_KEY

task="flashinfer:$dataset#${DEFINITION:-mla_paged_decode_h16_ckv512_kpe64_ps1}"
if [ -n "${FEEDBACK_WORKLOADS:-}" ]; then
  read -r -a workloads <<<"$FEEDBACK_WORKLOADS"
  task+=":$(IFS=,; printf '%s' "${workloads[*]}")"
fi

source "$(dirname "${BASH_SOURCE[0]}")/original_variables"
search_arguments "${LANGUAGE:-cuda}" 20 .ksearch-output-mla 7
exec "$ksearch" run "$task" "${arguments[@]}" "$@"
