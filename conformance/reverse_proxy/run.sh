#!/usr/bin/env bash
# Puts nginx and Caddy in front of a server, with the blocks of docs/production.md, and uses it through them.
#
#   conformance/reverse_proxy/run.sh SANDLING
#
# SANDLING is the path of the binary. Needs the Debian packages nginx-light, caddy, openssl and curl, and a template that
# was built before, as in conformance/server.sh.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
sandling=$(realpath "${1:?usage: run.sh SANDLING}")
for tool in nginx caddy openssl curl python3; do
  command -v "$tool" >/dev/null || { echo "$tool is missing; install it with apt-get" >&2; exit 1; }
done
. "$here/../server.sh"

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

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# The block of this language in docs/production.md, with this run's ports and files.
config() { # LANGUAGE
  sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$here/../../docs/production.md" | sed '1d;$d' |
    sed "s,127.0.0.1:8080,${SANDLING_API#http://},g; s,/etc/\(nginx\|caddy\)/,$run/,g; s,listen 443,listen 127.0.0.1:$port,
      s/^vm.example.org, \*.vm.example.org/vm.example.org:$port, *.vm.example.org:$port, 127.0.0.1:$port/"
}

start_nginx() {
  printf 'pid %s; error_log stderr; daemon off; events {}\nhttp {\naccess_log off;\n%s\n}\n' "$run/nginx.pid" \
    "$(config nginx)" >"$run/nginx.conf"
  nginx -p "$run" -c "$run/nginx.conf" 2>"$run/proxy.log" &
  proxy=$!
}
start_caddy() {
  printf '{\n  admin off\n  auto_https disable_redirects\n}\n%s\n' "$(config caddy)" >"$run/Caddyfile"
  HOME=$run XDG_DATA_HOME=$run XDG_CONFIG_HOME=$run caddy run --adapter caddyfile --config "$run/Caddyfile" \
    2>"$run/proxy.log" &
  proxy=$!
}
stop_proxy() {
  kill "$proxy"
  wait "$proxy" || true
  proxy=
}

# A request to any name below the domain, through the proxy.
through() { # URL [OPTION…]
  curl --silent --show-error --fail --noproxy '*' --max-time 120 --cacert "$run/vm.example.org.pem" \
    --connect-to "::127.0.0.1:$port" "${@:2}" "$1"
}
is() { # WHAT EXPECTED FOUND
  [ "$2" = "$3" ] || fail "$name: $1: expected $2, found $3"
}

use_server() {
  local origin=https://vm.example.org:$port id link audit
  local authorized=(--header "Authorization: Bearer $SANDLING_TOKEN")
  for attempt in $(seq 100); do
    ! through "$origin/healthz" >/dev/null 2>&1 || break
    sleep 0.1
  done
  through "$origin/healthz" >/dev/null || { cat "$run/proxy.log" >&2; fail "$name: no answer" && return; }
  # The command line names the proxy by its address, so that no name has to be resolved.
  export SANDLING_API=https://127.0.0.1:$port SSL_CERT_FILE=$run/vm.example.org.pem
  id=$("$sandling" create --template base --ttl 10m)

  head -c 20000000 /dev/urandom >"$run/large"
  "$sandling" cp "$run/large" "$id:large"
  is "an upload of 20 MB" "$(sha256sum <"$run/large")" "$("$sandling" exec "$id" sha256sum large | sed 's/large/-/')"

  is "output while a command runs" "first" "$("$sandling" exec -c 'echo first; read line; echo $line' "$id" \
    < <(sleep 600) | head -n 1)"
  is "a terminal" "42" "$(printf 'stty -echo; echo $((6 * 7)) >answer; exit\n' |
    script --quiet --return --command "'$sandling' shell $id" /dev/null >/dev/null && "$sandling" exec "$id" cat answer)"

  "$sandling" exec --detach -c 'mkdir site && cd site && echo a page >index.html && python3 -m http.server 8000' "$id" >/dev/null
  link=$(through "$origin/v1/sandboxes/$id/ports/8000/link" "${authorized[@]}" --json '{}' | grep -o 'https://[^"]*' | head -n 1)
  is "the host of a preview" "https://8000-$id.vm.example.org:$port" "${link%%/\?*}"
  is "a preview" "a page" "$(through "$link" --location --cookie "$run/cookies" --retry 60 --retry-delay 1 --retry-all-errors)"

  audit=$(through "$origin/v1/audit" "${authorized[@]}" --header 'X-Forwarded-For: 198.51.100.7' | grep -o '"remote":"[^"]*"' | sort -u)
  is "the clients of the audit log" '"remote":"127.0.0.1"' "$audit"
  "$sandling" rm "$id"
}

port=$(free_port)
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=vm.example.org -keyout "$run/vm.example.org.key" \
  -addext 'subjectAltName=DNS:vm.example.org,DNS:*.vm.example.org,IP:127.0.0.1' -out "$run/vm.example.org.pem" 2>/dev/null
start_server --domain vm.example.org --trusted-proxy 127.0.0.1
server_api=$SANDLING_API
for name in nginx caddy; do
  export SANDLING_API=$server_api
  "start_$name"
  use_server
  stop_proxy
  [ "$failed" != 0 ] || echo "conformance: $name passes everything on"
done
export SANDLING_API=$server_api
nothing_is_left
stop_server
exit "$failed"
