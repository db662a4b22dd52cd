#!/usr/bin/env bash
# Makes a certificate that signs itself, good for trying and for tests: FOLDER/cert.pem and key.pem.
set -euo pipefail
folder=${1:?usage: scripts/certificate.sh FOLDER ADDRESS}
address=${2:?usage: scripts/certificate.sh FOLDER ADDRESS}
umask 077
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
  -subj /CN=gateway -addext "subjectAltName=IP:$address" -addext basicConstraints=critical,CA:FALSE \
  -keyout "$folder/key.pem" -out "$folder/cert.pem" 2>/dev/null
