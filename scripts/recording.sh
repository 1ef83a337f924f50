# What the scripts that record figures share. PCLC is the command, RUNS the folder in which models are kept
# (runs/figures), so that a script can be interrupted and started again.
runs=${RUNS:-runs/figures}
pclc() { ${PCLC:-.venv/bin/pclc} "$@"; }

model() { # folder, then the arguments of pclc train
    local folder=$1
    shift
    [ -e "$runs/$folder/done" ] && return
    pclc train "$@" --out "$runs/$folder" && touch "$runs/$folder/done"
}
