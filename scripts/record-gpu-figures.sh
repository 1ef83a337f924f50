#!/usr/bin/env bash
# Record the figures of docs/performance.md that need a GPU, real data (PCLC_DATA) and the peers (`make peers`).
#
#   scripts/record-gpu-figures.sh NAME [OUT]
#
# NAME stands for the machine in the names of the files (h200); OUT is the folder for them (results/bench). A figure
# whose file is there is not measured again, and models are kept in RUNS (runs/figures), so that it can be interrupted.
# Afterwards: pclc bench page.
set -uo pipefail
name=$1 out=${2:-results/bench}
source "$(dirname "$0")/recording.sh"

figure() { # file, then the arguments of pclc bench
    local file=$out/$1-$name.json begun=$SECONDS
    shift
    [ -e "$file" ] && return
    pclc bench "$@" --save "$file.part" && mv "$file.part" "$file"
    echo "$file: $((SECONDS - begun)) s" >&2
}

mkdir -p "$out"
pgd='pgd(eps=8/255, alpha=2/255, steps=40)'

# What attacks are made of.
figure passes passes

# Attacks beside the peers: on a model that withstands, and on models that fall.
model vgg13-madry cifar10 --adversarial madry-cifar10 --lr 0.2 --epochs 30
figure attack-vgg13-robust attack "$runs/vgg13-madry" --attack "$pgd" --examples 10000 --batch-size 2000 --rounds 1
model vgg13-ce cifar10 --loss ce --warm-up-epochs 15 --epochs 15
figure attack-vgg13-ce attack "$runs/vgg13-ce" --attack "$pgd" --examples 10000 --batch-size 2000 --rounds 1
model lenet5-ce mnist --loss ce
figure attack-lenet5 attack "$runs/lenet5-ce" --attack 'pgd(eps=0.3, alpha=0.01, steps=40)' --examples 10000 \
    --batch-size 1000 --rounds 2
figure autoattack-vgg13-robust attack "$runs/vgg13-madry" --attack 'autoattack(eps=8/255)' --examples 500 \
    --batch-size 500 --rounds 1
figure autoattack-vgg13-ce attack "$runs/vgg13-ce" --attack 'autoattack(eps=8/255)' --examples 2000 \
    --batch-size 1000 --rounds 1

# What adversarial training leaves.
model vgg13-pc cifar10 --adversarial pc --lr 0.2 --epochs 30
figure robustness-cifar10 robustness "$runs/vgg13-madry" "$runs/vgg13-pc" \
    --attack 'pgd(eps=8/255, alpha=2/255, steps=50, restarts=3, objective="margin")'
model lenet5-madry mnist --adversarial madry-mnist --optimizer adam --lr 0.002 --batch-size 128 --steps 20 \
    --step-size 0.03 --epochs 50
figure robustness-mnist robustness "$runs/lenet5-madry" --attack 'pgd(eps=0.3, alpha=0.01, steps=100, restarts=10)'
figure train-cifar10-pc train cifar10 --adversarial pc --batch-size 512 --epochs 5
figure train-cifar10-madry train cifar10 --adversarial madry-cifar10 --loss ce --batch-size 512 --epochs 5

# Parity with pyautoattack, component by component.
model lenet5-pc-lc mnist --loss pc-lc
model vgg13-pc-lc cifar10 --loss pc-lc --warm-up-epochs 15 --epochs 15
for run in vgg13-ce vgg13-pc-lc vgg13-madry; do
    figure "parity-$run" parity "$runs/$run" --eps 8/255 --examples 1000 --seeds 3 --batch-size 1000
done
for run in lenet5-ce lenet5-pc-lc; do
    figure "parity-$run" parity "$runs/$run" --eps 0.1 --examples 1000 --seeds 3 --batch-size 1000
done
figure parity-lenet5-madry parity "$runs/lenet5-madry" --eps 0.3 --examples 1000 --seeds 3 --batch-size 1000
