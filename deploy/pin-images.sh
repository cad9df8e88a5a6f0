#!/bin/sh
# Pins every image of the Dockerfile and of compose.yaml by the digest that its registry has now:
# NAME:VERSION becomes NAME:VERSION@sha256:... Run it again for newer ones.
set -eu
cd "$(dirname "$0")"
for image in $(sed -nE 's/^(FROM| *image:) ([^ @]+).*/\2/p' Dockerfile compose.yaml | sort -u); do
  digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')
  sed -i -E "s|^(FROM\| *image:) $image(@[^ ]*)?( .*)?\$|\1 $image@$digest\3|" Dockerfile compose.yaml
done
