#!/usr/bin/env bash
# Training and decoding of normlab beside other programs, in turns on one core each:
#   bash scripts/bench_peers.sh [FOLDER] [OPTIONS]    for example: .peers --rounds 3 --model a
# Installs each of them, pinned, into an environment of its own below FOLDER (.peers), writes the same
# corpus for all, and leaves results/bench/peers.json and peers.md. --help lists the options.
# On a machine with other work, as root: chrt -f 1 bash scripts/bench_peers.sh --pause 30
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=.peers
if [[ $# -gt 0 && $1 != -* ]]; then folder=$1 && shift; fi
python=${PYTHON:-.venv/bin/python}
if ! "$python" -c 'import normlab.bench' 2> /dev/null; then
  echo "$python has no normlab: run scripts/environment.sh first, or name another by PYTHON" >&2
  exit 1
fi
torch=torch==2.13.0 numpy=numpy==2.4.6

# install NAME PACKAGES [-- PACKAGES WITHOUT WHAT THEY ASK FOR]; then build_NAME, if there is one
install() {
  local name=$1 wanted=() alone=() pip="$folder/$1/bin/pip --disable-pip-version-check"
  shift
  while [[ $# -gt 0 && $1 != -- ]]; do wanted+=("$1") && shift; done
  [[ $# -eq 0 ]] || alone=("${@:2}")
  [[ ! -e $folder/$name/installed ]] || return 0
  echo "installing $name below $folder"
  rm -rf "${folder:?}/$name" "$folder/$name.failed"
  if ! { "$python" -m venv "$folder/$name" && $pip install -q "${wanted[@]}" &&
    { [[ ${#alone[@]} -eq 0 ]] || $pip install -q --no-deps "${alone[@]}"; } &&
    { ! declare -F "build_$name" > /dev/null || "build_$name"; }; } \
    > "$folder/$name.log" 2>&1; then
    grep -v '^WARNING' "$folder/$name.log" | tail -n 1 > "$folder/$name.failed"
    return 0
  fi
  touch "$folder/$name/installed"
}

# Compiling all extensions of fairseq takes long, and of them only one is imported here. Its setup
# makes none at all when it takes itself to be building documentation.
build_fairseq() {
  local from=$folder/fairseq/source to=$folder/fairseq include
  $pip download -q -d "$from" --no-deps --no-binary :all: --no-build-isolation \
    fairseq-fixed==0.12.3.1 &&
    tar -xzf "$from"/*.tar.gz -C "$from" --strip-components 1 &&
    include=$("$to/bin/python" -c 'import numpy; print(numpy.get_include())') &&
    CC=g++ CXX=g++ CFLAGS="-O3 -I$include" \
      "$to/bin/cythonize" -i -3 "$from/fairseq/data/data_utils_fast.pyx" &&
    $pip install -q --no-deps --no-build-isolation "$from" &&
    cp "$from"/fairseq/data/*.so "$to"/lib/python3*/site-packages/fairseq/data
}

mkdir -p "$folder"
case " $* " in *" --help "* | *" -h "*) ;; *)
  # Of fairseq, eole and JoeyNMT, only what training and decoding import: they ask for torchaudio,
  # web servers and codecs, linters, and a version of protobuf that tensorboard no longer takes.
  READTHEDOCS=1 install fairseq $torch $numpy bitarray==3.12.3 cython==3.3.1 hydra-core==1.3.2 \
    omegaconf==2.3.0 sacrebleu==2.6.0 scikit-learn==1.9.1 setuptools==80.9.0 tqdm==4.70.1 \
    wheel==0.48.0
  install hugging_face $torch $numpy transformers==5.23.0
  install ctranslate2 $numpy ctranslate2==4.8.5
  install eole $torch $numpy configargparse==1.9.0 huggingface-hub==2.4.0 pydantic==2.14.3 \
    pyonmttok==1.38.1 pyyaml==6.0.3 rich==15.0.0 sacrebleu==2.6.0 safetensors==0.8.0 six==1.17.0 \
    tensorboard==2.21.0 tokenizers==0.23.3 -- eole==0.6.4
  install joeynmt $torch $numpy importlib-metadata==10.2.0 matplotlib==3.11.2 pyyaml==6.0.3 \
    sacrebleu==2.6.0 sacremoses==0.2.0 sentencepiece==0.2.3 subword-nmt==0.3.8 \
    tensorboard==2.21.0 tqdm==4.70.1 -- joeynmt==2.3.0
esac
PYTHONPATH=scripts${PYTHONPATH:+:$PYTHONPATH} exec "$python" -m peers.run "$folder" "$@"
