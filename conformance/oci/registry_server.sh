# Starts Debian's docker-registry in the folder $1, with the user `me` and the password `pw`. Sets `registry`, its process,
# and `port`. To be sourced.
start_registry() {
  local folder=$1
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  # shellcheck disable=SC2016 # The dollar signs belong to bcrypt.
  perl -e 'print "me:", crypt("pw", "\$2a\$05\$abcdefghijklmnopqrstuu"), "\n"' >"$folder/htpasswd"
  cat >"$folder/registry.yml" <<END
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $folder/registry}}
http: {addr: "127.0.0.1:$port", secret: x}
auth: {htpasswd: {realm: test, path: $folder/htpasswd}}
END
  docker-registry serve "$folder/registry.yml" >"$folder/registry.log" 2>&1 &
  # shellcheck disable=SC2034 # For the script that sources this.
  registry=$!
  for _ in $(seq 100); do
    ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
    sleep 0.1
  done
  echo "the registry does not start: $(cat "$folder/registry.log")" >&2
  return 1
}
