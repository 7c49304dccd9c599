#!/usr/bin/env bash
# Puts nginx and Caddy in front of a server, with the blocks of docs/production.md as they are, and uses it through them.
#
#   conformance/reverse_proxy/run.sh SANDLING
#
# SANDLING is the path of the binary. Everything runs in a network namespace of its own, with the ports and files that the
# page names, so nothing is tested without root. Needs the Debian packages nginx-light and caddy, and the template `base`,
# as in conformance/server.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING}")
. "$here/../../scripts/packages.sh"
if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: conformance/reverse_proxy/run.sh makes a network namespace, so it needs root" >&2
  exit
fi
if [ -z "${REVERSE_PROXY_ISOLATED:-}" ]; then
  install_packages "${REVERSE_PROXY_TEST_PACKAGES[@]}"
  REVERSE_PROXY_ISOLATED=yes exec unshare --mount --net "$0" "$sandling"
fi
. "$here/../server.sh"

page=$here/../../docs/production.md
origin=https://vm.example.org
# The host that the name stands for. It is not the proxy's address towards the server, so it can be told from it.
address=192.0.2.1
proxy=

finish() {
  local status=$?
  set +e
  [ -z "$proxy" ] || kill "$proxy"
  # `clean_up` reads the status of the last command.
  (exit "$status")
  clean_up "$here/../../target/reverse-proxy-conformance.log"
}
trap finish EXIT

block() { # LANGUAGE
  sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$page" | sed '1d;$d'
}

# Where the page's name leads, and the directories that its blocks are for. Only this script sees them.
prepare_host() {
  ip link set lo up
  ip address add "$address/32" dev lo
  cp -r /etc/nginx /etc/caddy "$run"
  mkdir "$run/nginx-log"
  printf '127.0.0.1 localhost\n%s vm.example.org\n' "$address" >"$run/hosts"
  rm -f "$run"/nginx/sites-enabled/*
  sed -i "s,^pid .*,pid $run/nginx.pid;," "$run/nginx/nginx.conf"
  block nginx >"$run/nginx/conf.d/sandling.conf"
  block caddy >"$run/caddy/Caddyfile"
  mount --bind "$run/hosts" /etc/hosts
  mount --bind "$run/nginx" /etc/nginx
  mount --bind "$run/nginx-log" /var/log/nginx
  mount --bind "$run/caddy" /etc/caddy
}

make_certificate() {
  openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj '/CN=A test authority' -keyout "$run/ca.key" -out "$run/ca.pem"
  openssl req -new -newkey rsa:2048 -nodes -subj /CN=vm.example.org -keyout "$run/key" -out "$run/request"
  openssl x509 -req -days 1 -in "$run/request" -CA "$run/ca.pem" -CAkey "$run/ca.key" -CAcreateserial -out "$run/pem" \
    -extfile <(echo 'subjectAltName=DNS:vm.example.org,DNS:*.vm.example.org')
  for directory in nginx caddy; do
    cp "$run/pem" "/etc/$directory/vm.example.org.pem"
    cp "$run/key" "/etc/$directory/vm.example.org.key"
  done
}

start_nginx() {
  nginx -g 'daemon off;' &
  proxy=$!
}
start_caddy() {
  HOME=$run XDG_DATA_HOME=$run XDG_CONFIG_HOME=$run caddy run --config /etc/caddy/Caddyfile 2>"$run/caddy.log" &
  proxy=$!
}
stop_proxy() {
  kill "$proxy"
  wait "$proxy" || true
  proxy=
}
proxy_log() { cat "$run/caddy.log" /var/log/nginx/error.log 2>/dev/null; }

# A request to the name or to one below it.
request() { # URL [OPTION…]
  curl --silent --show-error --fail --noproxy '*' --max-time 120 --cacert "$run/ca.pem" --connect-to "::$address:443" \
    "${@:2}" "$1"
}
is() { # WHAT EXPECTED FOUND
  [ "$2" = "$3" ] || fail "$name: $1: expected $2, found $3"
}

# Answers while a command writes nothing for longer than a proxy waits by default.
check_silence() {
  "$sandling" exec "$id" sh -c 'sleep 65; echo done' >"$run/silence"
}
check_upload() {
  head -c 20000000 /dev/urandom >"$run/large"
  "$sandling" cp "$run/large" "$id:large"
  is "an upload of 20 MB" "$(sha256sum <"$run/large")" "$("$sandling" exec "$id" sh -c 'sha256sum <large')"
}
# The command ends only after its first line has arrived.
check_output() {
  local first rest
  exec 3< <("$sandling" exec "$id" sh -c 'echo first; until [ -e seen ]; do sleep 0.1; done; echo rest')
  read -r -t 60 first <&3 || fail "$name: no output while the command ran"
  "$sandling" exec "$id" touch seen
  read -r -t 60 rest <&3 || true
  is "output while a command runs" "first rest" "$first $rest"
  "$sandling" exec "$id" rm seen
}
check_terminal() {
  printf 'echo $((6 * 7)) >answer; exit\n' | script --quiet --return --command "'$sandling' shell $id" /dev/null >/dev/null ||
    fail "$name: the terminal failed"
  is "a terminal" 42 "$("$sandling" exec "$id" cat answer)"
}
check_preview() {
  local link
  "$sandling" exec --detach "$id" sh -c 'mkdir -p site && cd site && echo a page >index.html && exec python3 -m http.server 8000' \
    >/dev/null
  link=$("$sandling" ports "$id" --link 8000)
  case $link in
  "https://8000-$id.vm.example.org/"*) ;;
  *) fail "$name: the link of a preview is $link" ;;
  esac
  is "a preview" "a page" "$(request "$link" --location --cookie "$run/$name-cookies" --cookie-jar "$run/$name-cookies" \
    --retry 60 --retry-delay 1 --retry-all-errors 2>"$run/preview.log")"
}
# A client cannot name another address as its own.
check_audit() {
  request "$origin/v1/me/tokens" --header "Authorization: Bearer $SANDLING_TOKEN" --header 'X-Forwarded-For: 198.51.100.7' \
    --json "{\"name\": \"$name\", \"scope\": \"read\"}" >/dev/null
  is "the client's address in the audit log" "\"$address\"" \
    "$("$sandling" audit --limit 1000 --json | python3 -c '
import json, sys
made = [entry for entry in json.load(sys.stdin) if entry["action"].startswith("token")]
print(json.dumps(made[-1]["remote"]))')"
}

use_server() {
  local id attempt silence
  for attempt in $(seq 100); do
    ! request "$origin/healthz" >/dev/null 2>&1 || break
    sleep 0.1
  done
  request "$origin/healthz" >/dev/null || { proxy_log >&2 && fail "$name: no answer" && return; }
  export SANDLING_API=$origin SSL_CERT_FILE=$run/ca.pem
  id=$("$sandling" create --template base --ttl 10m)
  check_silence &
  silence=$!
  check_upload
  check_output
  check_terminal
  check_preview
  check_audit
  wait "$silence" || fail "$name: the silent command failed"
  is "a silent command" done "$(cat "$run/silence")"
  "$sandling" rm "$id" >/dev/null
}

prepare_host
make_certificate 2>"$run/openssl.log" || { cat "$run/openssl.log" >&2 && exit 1; }
# The command of the page, as far as it is not in `start_server`.
listen=127.0.0.1:8080 start_server --domain vm.example.org --trusted-proxy 127.0.0.1
server_api=$SANDLING_API
for name in nginx caddy; do
  "start_$name"
  use_server
  stop_proxy
  [ "$failed" != 0 ] || echo "conformance: $name passes everything on"
done
export SANDLING_API=$server_api
unset SSL_CERT_FILE
nothing_is_left
stop_server
exit "$failed"
