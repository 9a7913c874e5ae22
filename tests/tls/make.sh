#!/bin/sh
# Makes the certificates of the tests anew: two authorities, a server's, one of another name, an expired one, a client's.
set -e
authority() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj "/CN=$1" -keyout "$1.key" -out "$1.pem"; }
signed() { # name, alternative names, first and last day of validity
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr"
  printf 'subjectAltName=%s\n' "$2" > "$1.ext"
  openssl x509 -req -in "$1.csr" -CA authority.pem -CAkey authority.key -CAcreateserial -days "$3" -extfile "$1.ext" -out "$1.pem"
  rm "$1.csr" "$1.ext"
}
authority authority
authority stranger
signed server IP:127.0.0.1,DNS:localhost 36500
signed elsewhere DNS:broker.example.net 36500
signed client email:web01@example.net 36500
signed expired IP:127.0.0.1,DNS:localhost 0
rm -f authority.key stranger.key authority.srl
