#!/usr/bin/env bash
# A search on one of KernelBench's problems: the original K-Search's launcher, by its name and with its variables.
# Nothing in here is to be edited; arguments go to `ksearch run`.
#
#   export LLM_API_KEY=… MODEL_NAME=… BASE_URL=…
#   DATASET_ROOT=KernelBench LEVEL=1 PROBLEM_ID=23 scripts/kernelbench_wm.sh --dry-run
#
#   MODEL_NAME, BASE_URL     the model and its endpoint; without them the built-in rules write
#   LLM_API_KEY, API_KEY     its key; it goes into no command line
#   DATASET_ROOT             a checkout of KernelBench (default: KSEARCH_KERNELBENCH); the original downloads it
#   LEVEL, PROBLEM_ID        1 and 1; levels 1 to 3
#   EVAL_MODE                local
#   LANGUAGE                 triton; cuda, python, cpp
#   DEVICE                   cuda, cuda:1, cpu (default: cuda where there is a GPU); on a CPU in sizes that one judges
#                            in seconds
#   MAX_OPT_ROUNDS           50
#   WM, WM_STAGNATION_WINDOW 1 and 5; WM=0 searches without the model's tree
#   ARTIFACTS_DIR            .ksearch
#   RUN_NAME                 of the run's folder (default: made of task and time)
#   CONTINUE_FROM_SOLUTION   a source file, a run or its best folder
#   WORLD_MODEL_JSON         a run, or a world model's file
#   WANDB, WANDB_PROJECT     1: Weights & Biases is told of the run (extra wandb; key in WANDB_API_KEY)
# Not taken over: NUM_CORRECT_TRIALS and NUM_PERF_TRIALS (every timed call is checked, and calls are timed until the
# speedup's interval is narrow), TARGET_GPU (kernels are for the device that they are timed on), LLM_PROVIDER (endpoints
# are OpenAI-compatible), KSEARCH_ROOT.
set -euo pipefail

fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 2; }
note() { printf 'note: %s\n' "$1" >&2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ksearch=$root/.venv/bin/ksearch
[ -x "$ksearch" ] || ksearch=$(command -v ksearch) || fail "ksearch is not installed" "pip install -e $root"

dataset=${DATASET_ROOT:-${KSEARCH_KERNELBENCH:-}}
[ -n "$dataset" ] || fail "DATASET_ROOT is not set" "name a checkout of github.com/ScalingIntelligence/KernelBench"
export KSEARCH_KERNELBENCH=$dataset
case ${LEVEL:-1} in
  1 | 2 | 3) ;;
  *) fail "LEVEL=$LEVEL is not supported" "1, 2 or 3" ;;
esac
case ${LLM_PROVIDER:-openai} in
  openai) ;;
  *) fail "LLM_PROVIDER=$LLM_PROVIDER is not supported" "openai: name an OpenAI-compatible endpoint in BASE_URL" ;;
esac
[ -z "${NUM_CORRECT_TRIALS:-}" ] || note "NUM_CORRECT_TRIALS: every timed call is on fresh inputs and checked, 8 or more"
[ -z "${NUM_PERF_TRIALS:-}" ] || note "NUM_PERF_TRIALS: calls are timed until the speedup's interval is narrow"
[ -z "${API_KEY:-}" ] || export KSEARCH_API_KEY=$API_KEY

task=kernelbench:${LEVEL:-1}/${PROBLEM_ID:-1}
source "$(dirname "${BASH_SOURCE[0]}")/original_variables"
search_arguments "${LANGUAGE:-triton}" 50 .ksearch 5
case " ${arguments[*]} " in
  *" --device cuda"*) ;;
  *) task+=:cpu ;;
esac
[ "${EVAL_MODE:-local}" = local ] || arguments+=(--kernelbench-eval-mode "$EVAL_MODE")
exec "$ksearch" run "$task" "${arguments[@]}" "$@"
