#!/usr/bin/env bash
# A home that holds one of everything that Sandling stores. Sourced by the scripts that record its formats and that
# upgrade it.
#
# Expects SANDLING_HOME to be set. `serve` starts a server on it, `stop` ends that server, and `fill` makes one of
# everything. `fill` writes the ids of what it made to the file $SANDLING_HOME/../ids, which can be sourced.

api() { # METHOD PATH [JSON] [HEADER…]
  local method=$1 path=$2 body=${3:-}
  shift 2
  [ "$#" = 0 ] || shift
  local headers=(--header "X-API-Key: $SANDLING_TOKEN" --header "Authorization: Bearer $SANDLING_TOKEN") header
  for header in "$@"; do headers+=(--header "$header"); done
  [ -z "$body" ] || headers+=(--header 'Content-Type: application/json' --data "$body")
  curl --silent --show-error --fail-with-body --noproxy '*' --request "$method" "${headers[@]}" "$SANDLING_API$path"
}

serve() { # SANDLING
  sandling=$1
  local log=$SANDLING_HOME/../server.log attempt
  : >"$log"
  unset SANDLING_TOKEN
  "$sandling" serve --listen 127.0.0.1:0 --standbys 0 --hibernate-after 0 >"$log" 2>&1 &
  server=$!
  SANDLING_API=
  for attempt in $(seq 600); do
    SANDLING_API=$(grep -om1 'http://127\.0\.0\.1:[0-9]*' "$log" || true)
    [ -z "$SANDLING_API" ] || break
    kill -0 "$server" 2>/dev/null || { cat "$log" >&2; return 1; }
    sleep 0.1
  done
  [ -n "$SANDLING_API" ] || { echo "the server did not say where it listens within 60 s" >&2; return 1; }
  SANDLING_TOKEN=$(cat "$SANDLING_HOME/token")
  export SANDLING_API SANDLING_TOKEN
}

# Ends the server and leaves the sandboxes as they are.
stop() {
  local ending=$server
  server=
  kill -TERM "$ending"
  wait "$ending"
}

fill() {
  local s=$sandling
  printf 'value-of-the-secret' | "$s" secret set API_KEY --host api.example.com --host '*.example.org'
  "$s" volume create data --size 64
  "$s" volume create shared --size 64

  # Workspaces, quotas, tokens.
  api POST /v1/workspaces '{"name": "team"}' >/dev/null
  api PATCH /v1/workspaces/default '{"record_runs": true}' >/dev/null
  "$s" quota --workspace team --set sandboxes=20 --set memory_mb=none >/dev/null
  read_token=$("$s" token create reader --scope read)
  "$s" token create old --scope run --days 30 >/dev/null
  team_token=$("$s" token create builder --scope admin --workspace team)

  # Network policies and defaults.
  "$s" network --default --allow pypi --allow 192.0.2.0/24:443 --limit connections=100 >/dev/null
  "$s" network --template base --set deny >/dev/null

  # A running sandbox that writes a volume, has a secret, a group, limits, labels and variables; and two forks of it.
  running=$("$s" create --template base --ttl 7d --idle 6d --label task=42 --env COLOUR=blue --volume data:/data \
    --allow api.example.com --deny 198.51.100.0/24 --secret API_KEY --network-limit connections=7 --group crew \
    --hostname one --pids 300)
  "$s" exec "$running" sh -c 'echo in the volume >/data/file; echo on the disk >/root/file; sync'
  children=$("$s" fork -n 2 --volumes clone --ttl 7d "$running" | tr '\n' ' ')

  # A persistent one, and a template and an export from its snapshots.
  persistent=$("$s" create --template base --persistent --network deny)
  "$s" exec "$persistent" sh -c 'echo kept >/root/file'
  snapshot=$("$s" snapshot create --name before "$persistent")
  unnamed=$("$s" snapshot create "$persistent")
  "$s" snapshot to-template --description 'A golden template' "$snapshot" golden
  "$s" snapshot export "$snapshot" "$SANDLING_HOME/../export"
  from_template=$("$s" create --template golden --ttl 7d --idle 6d)
  "$s" volume clone shared shared-copy
  "$s" volume snapshot shared shared-moment

  # One that hibernates, reads a volume and had a listener.
  hibernated=$("$s" create --template base --ttl 7d --idle 6d --volume shared:/shared:ro --inspect-tls --allow example.com)
  "$s" exec "$hibernated" sh -c 'echo asleep >/root/file; (while :; do sleep 1; done) & sync' </dev/null
  "$s" hibernate "$hibernated"

  # One with checkpoints before everything, one of them named, and a rewind.
  timeline=$("$s" create --template base --ttl 7d --idle 6d --checkpoints every-exec --checkpoints-kept 5)
  "$s" exec "$timeline" sh -c 'echo one >/root/file'
  "$s" exec "$timeline" sh -c 'echo two >/root/file'
  "$s" checkpoint create --name two "$timeline" >/dev/null
  "$s" exec "$timeline" sh -c 'echo three >/root/file'
  "$s" rewind --to two "$timeline" >/dev/null

  # A template from steps, and a sandbox of it that E2B's clients made.
  local build
  build=$(api POST /v1/templates/build \
    '{"name": "steps", "dockerfile": "FROM base\nRUN mkdir /app\nENV COLOUR=green\nUSER nobody\nWORKDIR /app\n"}' |
    jq -r .id)
  until api GET "/v1/templates/builds/$build" | jq -e '.status == "done" or .status == "failed"' >/dev/null; do
    sleep 1
  done
  api GET "/v1/templates/builds/$build" | jq -e '.status == "done"' >/dev/null
  e2b=$(api POST /sandboxes '{"templateID": "steps", "timeout": 600000, "metadata": {"a": "b"}, "autoPause": true,
    "allow_internet_access": false, "envVars": {"SHAPE": "round"}}' | jq -r .sandboxID)
  paused=$("$s" create --template steps --ttl 7d --idle 6d)
  "$s" pause "$paused"

  # Previews, an idempotent request, a sandbox that has ended, and one of another workspace.
  "$s" ports "$running" --link 8000 --ttl 7d >/dev/null
  api POST /v1/sandboxes "{\"template\": \"base\", \"ttl_seconds\": 600000}" 'Idempotency-Key: golden' >/dev/null
  ended=$("$s" create --template base)
  "$s" rm "$ended"
  team=$(SANDLING_TOKEN=$team_token "$s" create --template base --ttl 7d --idle 6d --label who=team)

  local name
  for name in running children persistent snapshot unnamed from_template hibernated timeline e2b paused ended team \
    read_token team_token; do
    printf '%s=%q\n' "$name" "${!name}"
  done >"$SANDLING_HOME/../ids"
}
