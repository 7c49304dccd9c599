'use strict';
// Node interpreters of a sandbox. A spare warms up and waits for its activation as a script or a context; a cold one is
// activated at once and does not warm up.
//
//     node node.js spare|cold
//
// The guest agent speaks JSON lines on file descriptor 3, and descriptor 4 is the permit to signal this process; README.md
// is the contract. Node cannot fork, so every spare is started as a process of its own, and the agent makes it the leader of
// a session.

const fs = require('fs');
const os = require('os');
const path = require('path');
const tls = require('tls');
const vm = require('vm');
const Module = require('module');
const url = require('url');
const { reseed, opensslReseeds } = require('./node_reseed.js');

const CONTROL_FD = 3;
// The modules that model-written code loads most.
const WARM_MODULES = [
  'assert', 'buffer', 'child_process', 'crypto', 'events', 'fs/promises', 'http', 'https', 'net', 'os', 'perf_hooks',
  'readline', 'stream', 'stream/promises', 'string_decoder', 'timers/promises', 'tls', 'url', 'util', 'worker_threads',
  'zlib',
];
// V8's error messages for code that is an ES module and not a CommonJS script.
const MODULE_SYNTAX =
  /^(Cannot use import statement|Unexpected token 'export'|await is only valid|Cannot use 'import\.meta')/;

/** The control socket. Reads block, because a spare has nothing else to do before its activation. */
class Control {
  constructor() {
    this.pending = Buffer.alloc(0);
  }

  receive() {
    for (;;) {
      const end = this.pending.indexOf(10);
      if (end >= 0) {
        const line = this.pending.toString('utf8', 0, end);
        this.pending = this.pending.subarray(end + 1);
        return JSON.parse(line);
      }
      const chunk = Buffer.allocUnsafe(65536);
      const length = fs.readSync(CONTROL_FD, chunk);
      if (length === 0) return null;
      this.pending = Buffer.concat([this.pending, chunk.subarray(0, length)]);
    }
  }

  send(message) {
    fs.writeSync(CONTROL_FD, JSON.stringify(message) + '\n');
  }
}

/** Loads what the first user would otherwise wait for. */
async function warm(context) {
  for (const name of WARM_MODULES) require(name);
  process.stdout, process.stderr;
  new Module('warm')._compile('module.exports = require("path")', path.join(os.tmpdir(), 'warm.js'));
  await import('fs');
  // Loads the client behind `fetch`; a `data:` address needs no network.
  if (globalThis.fetch) await fetch('data:,warm').then((answer) => answer.text()).catch(() => {});
  await context.warm();
}

async function main(isSpare) {
  const control = new Control();
  const context = require('./node_context.js');
  if (isSpare) await warm(context);
  control.send({ ready: true, pid: process.pid, openssl_reseed: opensslReseeds });
  const message = activation(control);
  reseed(message.entropy ?? '');
  try {
    takeIdentity(message);
  } catch (problem) {
    control.send({ failed: problem.message });
    process.exit(1);
  }
  control.send({ activated: true });
  if (message.become === 'context') {
    if (!isSpare) await context.warm();
    context.serve(CONTROL_FD, control.pending);
  } else {
    if (isSpare) context.close();
    for (const fd of [CONTROL_FD, context.PERMIT_FD]) fs.closeSync(fd);
    runScript(message.code, message.args);
  }
}

/** Waits for the activation; handles reseeds that come before it. */
function activation(control) {
  for (;;) {
    const message = control.receive();
    if (message === null) process.exit(0);
    if (message.become) return message;
    reseed(message.reseed);
  }
}

/** Sets the user, the working directory and the environment that the activation names. */
function takeIdentity({ uid, gid, groups, cwd, env }) {
  if (uid != null && uid !== process.geteuid()) {
    process.setgroups(groups ?? []);
    process.setgid(gid);
    process.setuid(uid);
  }
  if (cwd != null) process.chdir(cwd);
  for (const name of Object.keys(process.env)) if (!(name in env)) delete process.env[name];
  for (const [name, value] of Object.entries(env)) if (process.env[name] !== value) process.env[name] = value;
  // Node reads NODE_PATH and HOME only once unless it is told to read them again.
  Module._initPaths();
  if (env.NODE_EXTRA_CA_CERTS) trust(env.NODE_EXTRA_CA_CERTS);
}

/** Adds a file's certificate authorities to the default ones; Node itself reads the variable at startup only. */
function trust(file) {
  let authorities;
  try {
    authorities = fs.readFileSync(file);
  } catch (problem) {
    process.emitWarning(`Ignoring extra certs from \`${file}\`, load failed: ${problem.message}`);
    return;
  }
  const { createSecureContext } = tls;
  tls.createSecureContext = (options) => {
    const made = createSecureContext(options);
    if (!options?.ca) made.context.addCACert(authorities);
    return made;
  };
  Module.syncBuiltinESMExports();
}

/** Runs the code as the main module, on a stack without frames of this file. */
function runScript(code, args) {
  const filename = path.join(process.cwd(), 'main.js');
  process.argv = [process.execPath, filename, ...args];
  if (isModule(code)) {
    runModule(code);
    return;
  }
  const main = new Module('.');
  main.filename = filename;
  main.paths = Module._nodeModulePaths(process.cwd());
  process.mainModule = main;
  Module._cache[filename] = main;
  setImmediate(main._compile.bind(main, code.replace(/^#!.*/, ''), filename));
}

function isModule(code) {
  if (!/\b(import|export|await)\b/.test(code)) return false;
  try {
    vm.compileFunction(code, ['exports', 'require', 'module', '__filename', '__dirname']);
    return false;
  } catch (problem) {
    return problem instanceof SyntaxError && MODULE_SYNTAX.test(problem.message);
  }
}

/** Node resolves a module's imports from its file, so it gets one, which is removed before its first line runs. */
function runModule(code) {
  const name = `.main-${process.pid}-${Date.now()}.mjs`;
  const forget = Symbol.for('sandling.forget');
  const prologue = `import 'data:text/javascript,globalThis[Symbol.for("sandling.forget")]()';`;
  for (const folder of [process.cwd(), os.tmpdir()]) {
    const file = path.join(folder, name);
    try {
      fs.writeFileSync(file, prologue + code.replace(/^#!.*/, ''), { flag: 'wx', mode: 0o600 });
    } catch {
      continue; // The folder is not writable; from another one, relative imports are not found.
    }
    globalThis[forget] = () => {
      delete globalThis[forget];
      fs.unlinkSync(file);
    };
    process.once('exit', () => globalThis[forget]?.());
    setImmediate(() => import(url.pathToFileURL(file)));
    return;
  }
  process.stderr.write('could not write the module to a file, in the working directory or in the temporary one\n');
  process.exitCode = 1;
}

if (['spare', 'cold'].includes(process.argv[2])) {
  main(process.argv[2] === 'spare');
} else {
  process.stderr.write('usage: node node.js spare|cold\n');
  process.exitCode = 2;
}
