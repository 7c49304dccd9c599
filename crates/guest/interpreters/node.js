'use strict';
// Node interpreters of a sandbox: a spare that waits, warm, until it is told which script or context to be, or one that
// is told at once, and does not warm up first.
//
//     node node.js spare|cold
//
// The peer (the guest agent) speaks JSON lines on file descriptor 3; README.md is the contract. Node cannot fork, so
// every spare is a process of its own from the start, and the agent makes it the leader of a session.

const fs = require('fs');
const os = require('os');
const path = require('path');
const tls = require('tls');
const vm = require('vm');
const Module = require('module');
const url = require('url');
const { reseed, opensslReseeds } = require('./node_reseed.js');

const CONTROL_FD = 3;
// What model-written code asks for most, so that a spare never waits for it.
const WARM_MODULES = [
  'assert', 'buffer', 'child_process', 'crypto', 'events', 'fs/promises', 'http', 'https', 'net', 'os', 'perf_hooks',
  'readline', 'stream', 'stream/promises', 'string_decoder', 'timers/promises', 'tls', 'url', 'util', 'worker_threads',
  'zlib',
];
// How V8 says that code is a module and not a CommonJS script.
const MODULE_SYNTAX =
  /^(Cannot use import statement|Unexpected token 'export'|await is only valid|Cannot use 'import\.meta')/;

/** The control socket, read by blocking: until it is activated, a spare has nothing else to do. */
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

/** Loads what a first user would otherwise wait for. */
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
    fs.closeSync(CONTROL_FD);
    runScript(message.code, message.args);
  }
}

/** The message that says what to become; reseeds on the way. */
function activation(control) {
  for (;;) {
    const message = control.receive();
    if (message === null) process.exit(0);
    if (message.become) return message;
    reseed(message.reseed);
  }
}

/** The user, the folder and the environment of whoever asked. */
function takeIdentity({ uid, gid, groups, cwd, env }) {
  if (uid != null && uid !== process.geteuid()) {
    process.setgroups(groups ?? []);
    process.setgid(gid);
    process.setuid(uid);
  }
  if (cwd != null) process.chdir(cwd);
  for (const name of Object.keys(process.env)) if (!(name in env)) delete process.env[name];
  for (const [name, value] of Object.entries(env)) if (process.env[name] !== value) process.env[name] = value;
  // NODE_PATH and HOME are read only once otherwise.
  Module._initPaths();
  if (env.NODE_EXTRA_CA_CERTS) trust(env.NODE_EXTRA_CA_CERTS);
}

/** Adds a file's authorities to those that are trusted where none are named; Node itself looks at its start only. */
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

/** Runs the code as the main module, from a stack that holds no frame of this file. */
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

/** A module's imports are found from the file it is in, so it needs one; it is gone before its first line runs. */
function runModule(code) {
  const name = `.main-${process.pid}-${Date.now()}.mjs`;
  const forget = Symbol.for('sandling.forget');
  const prologue = `import 'data:text/javascript,globalThis[Symbol.for("sandling.forget")]()';`;
  for (const folder of [process.cwd(), os.tmpdir()]) {
    const file = path.join(folder, name);
    try {
      fs.writeFileSync(file, prologue + code.replace(/^#!.*/, ''), { flag: 'wx', mode: 0o600 });
    } catch {
      continue; // A folder that may not be written to: then imports by relative path are not found.
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
