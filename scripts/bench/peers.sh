#!/usr/bin/env bash
# Training and decoding of normlab beside other programs, in turns on one core each:
#   bash scripts/bench/peers.sh [FOLDER] [OPTIONS]    for example: .peers --rounds 3 --model a
# Installs each of them, pinned, into an environment of its own below FOLDER (.peers), writes the same
# corpus for all, and leaves results/bench/peers.json and peers.md. --help lists the options.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=.peers
if [[ $# -gt 0 && $1 != -* ]]; then folder=$1 && shift; fi
python=${PYTHON:-.venv/bin/python}
if ! "$python" -c 'import normlab' 2> /dev/null; then
  echo "$python has no normlab: run scripts/environment.sh first, or name another by PYTHON" >&2
  exit 1
fi
torch=torch==2.13.0 numpy=numpy==2.4.6

# install NAME PACKAGES
install() {
  local name=$1 pip="$folder/$1/bin/pip --disable-pip-version-check"
  shift
  [[ ! -e $folder/$name/installed ]] || return 0
  echo "installing $name below $folder"
  rm -rf "${folder:?}/$name" "$folder/$name.failed"
  if { "$python" -m venv "$folder/$name" && $pip install -q "$@"; } > "$folder/$name.log" 2>&1; then
    touch "$folder/$name/installed"
  else
    grep -v '^WARNING' "$folder/$name.log" | tail -n 1 > "$folder/$name.failed"
  fi
}

mkdir -p "$folder"
case " $* " in *" --help "* | *" -h "*) ;; *)
  install hugging_face $torch $numpy transformers==5.23.0
  install ctranslate2 $numpy ctranslate2==4.8.5
esac
exec "$python" scripts/bench peers "$folder" "$@"
