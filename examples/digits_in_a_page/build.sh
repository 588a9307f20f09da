#!/bin/sh -e
# Build the page in a folder that has the digits' network as C, with clang, lld and wasi-libc:
#   glasshouse train digits
#   glasshouse export runs/digits --sizes input=1x1x8x8 --out page --name predict
#   sh examples/digits_in_a_page/build.sh page && python3 -m http.server -d page
here=$(dirname "$0")
folder=$1
clang --target=wasm32-wasi -mexec-model=reactor -std=gnu11 -O3 -msimd128 -fwrapv -fno-math-errno \
  -fno-trapping-math -ffp-contract=off -Wl,--strip-all -I "$folder" -o "$folder/page.wasm" \
  "$here/page.c" "$folder/glasshouse.c" "$folder/safetensors.c" "$folder/gh_runner.c" \
  "$folder/predict.c" -lm
cp "$here/index.html" "$here/page.js" "$folder"
wc -c "$folder/page.wasm" "$folder/predict.safetensors"
