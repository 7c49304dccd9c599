# The steps of scripts/first_hour.sh, which runs them in a clean Debian. Each one checks what the user sees.

step() { # NAME FUNCTION
  begun=$(date +%s%N)
  "$2" >/tmp/said 2>&1 || { cat /tmp/said >&2 && echo "failed: $1" >&2 && exit 1; }
  took=$((($(date +%s%N) - begun) / 100000000))
  printf '| %s | %d.%d |\n' "$1" $((took / 10)) $((took % 10))
}

python() { apt-get update && apt-get install -y --no-install-recommends python3-venv curl; }
pip_install() { python3 -m venv venv && venv/bin/pip install /dist/sandling-*.whl && ln -s /root/venv/bin/sandling /usr/local/bin/; }
first_command() {
  ! sandling run -c 'print(1)' 2>said
  sed -n 's/.*try again: //p' said >install.sh
  grep 'apt-get install' install.sh
}
system_packages() { . ./install.sh; }
doctor() { sandling doctor; }
first_answer() { [ "$(sandling run -c 'print(6 * 7)')" = 42 ]; }
pandas() { sandling run -c 'import pandas; print(pandas.__version__)'; }
project() {
  mkdir -p project/data
  echo 'def load(): return open("data/n.txt").read()' >project/helper.py
  echo 42 >project/data/n.txt
  echo 'import helper, humanize; print(humanize.apnumber(int(helper.load()) - 35))' >project/main.py
  echo humanize >project/requirements.txt
  (cd project && [ "$(sandling run -r requirements.txt main.py)" = seven ])
}
serve() { sandling serve >/tmp/serve.log 2>&1 & sandling ls; }
create() { sandling create --name web --checkpoints every-exec --ttl 1h; }
execute() { [ "$(sandling exec web python3 -c 'print(6 * 7)')" = 42 ]; }
copy() {
  sandling cp project web:/workspace/project
  sandling cp web:/workspace/project back
  diff -r project back
}
fork() {
  child=$(sandling fork web)
  [ "$(sandling exec "$child" cat /workspace/project/data/n.txt)" = 42 ]
  sandling rm "$child"
}
rewind() {
  sandling checkpoint create web --name good
  sandling exec web rm -r /workspace/project
  sandling rewind web --to good
  [ "$(sandling exec web cat /workspace/project/data/n.txt)" = 42 ]
}
preview() {
  sandling exec --detach -w /workspace/project web python3 -m http.server 8000
  link=$(sandling ports web --link 8000)
  for _ in $(seq 60); do curl -fsSL --cookie-jar jar "$link" | grep -q main.py && return; sleep 0.5; done
  return 1
}
mcp() {
  {
    echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"first-hour","version":"1"}}}'
    echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    echo '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"run_code","arguments":{"code":"print(6 * 7)"}}}'
    # The session ends with its input.
    for _ in $(seq 120); do grep -q '"id":2' answers 2>/dev/null && break; sleep 0.5; done
  } | sandling mcp >answers
  grep '"id":2' answers | grep 42
}
agent() {
  mkfifo wait
  python3 -B /opt/model.py <wait >address &
  exec 9>wait
  while [ ! -s address ]; do sleep 0.1; done
  ANTHROPIC_API_KEY=none ANTHROPIC_BASE_URL=$(cat address) \
    sandling agent --model scripted --files project --apply --yes 'Add a function that greets.'
  exec 9>&-
  grep -q 'def greet' project/greeting.py
}
python_sdk() {
  venv/bin/python -c '
from sandling import Sandbox
with Sandbox.create() as sandbox:
    sandbox.run_code("x = 6 * 7")
    with sandbox.fork() as child:
        assert child.run_code("print(x)").stdout == "42\n"'
}
node() { apt-get install -y --no-install-recommends nodejs npm; }
npm_install() { mkdir -p js && cd js && npm init --yes && npm install --no-audit --no-fund /dist/sandling-*.tgz; cd; }
typescript_sdk() {
  (cd js && node_modules/.bin/sandling --version && command node --input-type module --eval '
import { Sandbox } from "sandling";
const sandbox = await Sandbox.create();
await sandbox.runCode("x = 6 * 7");
const { stdout } = await sandbox.runCode("print(x)");
await sandbox.kill();
if (stdout !== "42\n") throw new Error(stdout);')
}

step "Debian's Python" python
step "\`pip install sandling\`" pip_install
step "the first command says what is missing" first_command
step "installing that" system_packages
step "\`run -c\`, the first answer, with a template that a colleague built" first_answer
step "\`doctor\`" doctor
step "\`run -c 'import pandas'\`" pandas
step "a project with \`-r requirements.txt\`" project
step "\`serve\`" serve
step "\`create\`" create
step "\`exec\`" execute
step "\`cp\` of a project, in and out" copy
step "\`fork\`, a command in the child" fork
step "\`checkpoint\`, a mistake, \`rewind\`" rewind
step "a preview of port 8000" preview
step "MCP: \`run_code\` in a new session" mcp
step "\`agent\` with a scripted model, changes applied" agent
step "Python SDK: \`run_code\`, \`fork\`, \`run_code\`" python_sdk
step "Debian's Node" node
step "\`npm install sandling\`" npm_install
step "TypeScript SDK: \`runCode\` twice" typescript_sdk
