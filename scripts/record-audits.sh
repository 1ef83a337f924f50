#!/usr/bin/env bash
# Record the audits of docs/audit.md, which need real data (PCLC_DATA) and are meant for a GPU.
#
#   scripts/record-audits.sh NAME [OUT] [MODELS]
#
# NAME stands for the machine in the names of the files (h200); OUT is the folder for them (results/audits); MODELS is a
# pattern for names of models, such as 'lenet5-*' (all of them). An audit whose file is there is not made again, and
# models are kept in RUNS (runs/figures), so that it can be interrupted. TRAIN and AUDIT hold more options for
# `pclc train` and `pclc audit`, to try the script: TRAIN='--epochs 1' AUDIT='--examples 60'. Afterwards:
# pclc bench audits --page docs/audit.md --page README.md
set -uo pipefail
name=$1 out=${2:-results/audits} models=${3:-*}
source "$(dirname "$0")/recording.sh"

audited() { # model, twin for transfers or -, radii with commas between, then the arguments of pclc train
    local model=$1 twin=$2 radii=$3
    shift 3
    # shellcheck disable=SC2053 (a pattern)
    [[ $model == $models ]] || return
    model "$model" "$@" ${TRAIN:-} || return
    for eps in ${radii//,/ }; do
        audit "$model" "$twin" "$eps"
    done
}

audit() { # model, twin or -, radius
    local run=$runs/$1 folder=$runs/$1/audit-${3/\//-} file=$out/$1-eps-${3/\//-}-$name.json begun=$SECONDS transfers=()
    [ -e "$file" ] && return
    [ "$2" != - ] && [ -e "$runs/$2/done" ] && transfers=(--transfer-from "$runs/$2")
    pclc audit "$run" --eps "$3" --full --out "$folder" "${transfers[@]}" ${AUDIT:-}
    case $? in
    0 | 1 | 3) pclc bench audits "$run" --audit "$folder" "${transfers[@]}" --save "$file" ;;
    *) return 1 ;;
    esac
    echo "$file: $((SECONDS - begun)) s" >&2
}

mkdir -p "$out"

# MNIST: minutes. Transfers come from the network that was trained with cross-entropy, as in the paper.
audited lenet5-ce - 0.1,0.3 mnist --loss ce
audited lenet5-pc-lc lenet5-ce 0.1,0.3 mnist --loss pc-lc
audited lenet5-gce lenet5-ce 0.1,0.3 mnist --loss gce
audited lenet5-madry lenet5-ce 0.3 mnist --adversarial madry-mnist --optimizer adam --lr 0.002 --batch-size 128 --steps 20 \
    --step-size 0.03 --epochs 50

# CIFAR-10 with the paper's recipe, 150 epochs a phase, and adversarially trained networks.
audited vgg13-paper-ce - 8/255 cifar10 --loss ce
audited vgg13-paper-pc-lc vgg13-paper-ce 8/255 cifar10 --loss pc-lc
audited vgg13-paper-pc-lc-authors vgg13-paper-ce 8/255 cifar10 --loss pc-lc-authors
audited vgg13-paper-gce vgg13-paper-ce 8/255 cifar10 --loss gce
audited vgg13-madry vgg13-paper-ce 8/255 cifar10 --adversarial madry-cifar10 --lr 0.2 --epochs 30
audited vgg13-pc vgg13-paper-ce 8/255 cifar10 --adversarial pc --lr 0.2 --epochs 30
