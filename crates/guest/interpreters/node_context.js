'use strict';
// A context: cells that run one after another in one global scope. Values and errors are returned as data.
//
// V8's REPL mode evaluates the cells, because only it allows `let`, `const` and `class` to be declared again, and
// `await` at the top level. An inspector session within the process reaches it; nothing outside can connect to it.

const { readSync, writeSync } = require('fs');
const inspector = require('inspector');
const Module = require('module');
const net = require('net');
const path = require('path');
const { Writable } = require('stream');
const vm = require('vm');
const { bundle, describe, line, withoutImports } = require('./node_results.js');
const { reseed, dropCaches } = require('./node_reseed.js');
const { withoutTypes } = require('./node_typescript.js');

const STEP = Symbol.for('sandling.step');
// Runs STEP so that a signal can stop it even in an endless loop.
const stoppable = new vm.Script(`globalThis[Symbol.for('sandling.step')]()`, { filename: 'sandling' });

// The agent signals this process only after it has taken the permit, which lies in this descriptor while a cell can be
// signalled. Without it, a signal could come between two cells, when there is no handler, or stop the next cell.
const PERMIT_FD = 4;
const PERMIT = Buffer.from(BigUint64Array.of(1n).buffer);
// The longest wait for a signal that the agent must have sent. Only a cell that handles signals itself makes it wait so long.
const SIGNAL_WAIT_MS = 3000;
const { wait } = Atomics;
const never = new Int32Array(new SharedArrayBuffer(4));

const session = new inspector.Session();
let receiver = null;
let received;

/** Connects to the evaluator and uses it once, because the first use is slow. */
async function warm() {
  session.connect();
  globalThis[STEP] = (value) => { received = value; };
  session.post('Runtime.evaluate', { expression: `globalThis[Symbol.for('sandling.step')]` }, (_problem, answer) => {
    receiver = answer.result.objectId;
  });
  delete globalThis[STEP];
  const rehearsal = new Context(line);
  await rehearsal.run(0, '[{ a: await 1 }]');
  await rehearsal.run(0, 'throw new Error("warm")');
}

function close() {
  session.disconnect();
}

/** Runs the cells that arrive on `fd` until it is closed; `pending` holds those that arrived before. */
function serve(fd, pending) {
  const socket = new net.Socket({ fd, readable: true, writable: true });
  const send = (message) => socket.write(line(message));
  const context = new Context(send);
  context.prepareProcess();
  let partial = pending;
  const take = (chunk) => {
    partial = Buffer.concat([partial, chunk]);
    for (let end; (end = partial.indexOf(10)) >= 0; partial = partial.subarray(end + 1)) {
      context.receive(JSON.parse(partial.toString('utf8', 0, end)));
    }
  };
  socket.on('data', take);
  socket.on('end', () => exit(0));
  socket.on('error', () => exit(1));
  take(Buffer.alloc(0));
}

const exit = process.exit.bind(process);

class Context {
  constructor(send) {
    this.send = send;
    this.waiting = [];
    this.number = null;
    this.interrupt = null;
    this.busy = false;
  }

  /** Sets the globals that user code expects, and keeps it from ending the process. */
  prepareProcess() {
    const home = path.join(process.cwd(), '[cell]');
    const module = new Module(home);
    module.filename = home;
    module.paths = Module._nodeModulePaths(process.cwd());
    // Compiled under the working directory, so that imports are found from there.
    module._compile('module.exports = { require, load: (name) => import(name) };', home);
    const { require, load } = module.exports;
    module.exports = {};
    const display = (...values) => values.forEach((value) => this.send({ result: bundle(value) }));
    const names = { __filename: home, __dirname: process.cwd(), __import: load };
    const globals = { require, module, exports: module.exports, display, ...names };
    for (const [name, value] of Object.entries(globals)) {
      Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
    }
    process.argv = [process.execPath];
    process.exit = (code) => {
      throw Object.assign(new Error(`process.exit(${code ?? ''}) was called`), { name: 'ProcessExit' });
    };
    // Without a listener, a signal that does not come from the agent would end the process.
    process.on('SIGINT', () => {});
    process.on('uncaughtException', (problem) => process.stderr.write(describe(problem).text));
  }

  receive(message) {
    if (message.reseed !== undefined) {
      reseed(message.reseed);
      dropCaches();
    } else if (message.cell !== undefined) {
      this.waiting.push(message);
      this.runNext();
    } else if (message.interrupt === this.number) {
      this.interrupt?.();
    }
  }

  async runNext() {
    if (this.busy) return;
    const next = this.waiting.shift();
    if (next === undefined) return;
    this.busy = true;
    await this.run(next.cell, next.code, next.env, next.typescript);
    this.busy = false;
    this.runNext();
  }

  /** Runs one cell. The variables of `environment` are set only while it runs. */
  async run(number, code, environment = {}, isTypeScript = false) {
    const before = Object.keys(environment).map((name) => [name, process.env[name]]);
    Object.assign(process.env, environment);
    this.number = number;
    const interrupted = new Promise((resolve) => { this.interrupt = () => resolve({ interrupted: true }); });
    const evaluated = isTypeScript ? evaluateTypeScript : evaluate;
    let outcome = await Promise.race([evaluated(code, `[cell-${number}]`), interrupted]);
    this.interrupt = null;
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    try {
      if (outcome.value !== undefined) this.send({ result: bundle(outcome.value), value: true });
    } catch (problem) {
      outcome = { thrown: problem };
    }
    const status = outcome.interrupted ? 'interrupted' : 'thrown' in outcome ? 'error' : 'ok';
    const error = outcome.interrupted
      ? { name: 'Interrupted', value: 'the cell was interrupted', text: 'Interrupted: the cell was interrupted\n' }
      : 'thrown' in outcome ? describe(outcome.thrown, outcome.syntax) : null;
    if (outcome.interrupted) [process.stdout, process.stderr].forEach(mend);
    await Promise.all([written(process.stdout), written(process.stderr)]);
    this.send({ done: number, status, error });
  }
}

/**
 * Ends a write that an interrupt cut off. Such a stream waits for ever for the end of that write, and buffers whatever
 * is written after it.
 */
function mend(stream) {
  const state = stream._writableState;
  // What the handle still has to write ends by itself.
  if (stream.destroyed || !stream._handle || stream._handle.writeQueueSize > 0) return;
  state.bufferProcessing = false;
  if (state.writing) state.onwrite(null);
  else if (state.buffered.length === 0) state.length = 0;
}

/** Resolves when all output is in the pipe; Node buffers what does not fit. */
function written(stream) {
  if (!stream.writableLength || stream.destroyed) return null;
  return new Promise((resolve) => Writable.prototype.write.call(stream, '', resolve));
}

function evaluateTypeScript(code, name) {
  try {
    return evaluate(withoutTypes(code), name);
  } catch (thrown) {
    return Promise.resolve({ thrown });
  }
}

/** Runs code in the global scope. Returns `{value}`, `{thrown}` or `{interrupted}`. */
function evaluate(code, name) {
  let resolve;
  let failed = false;
  const outcome = new Promise((resolver) => { resolve = resolver; });
  const request = { expression: `${withoutImports(code)}\n//# sourceURL=${name}`, replMode: true, objectGroup: 'cell' };
  const answered = (problem, answer) => {
    // To newer versions, an interrupt is such a problem, too. It is told apart below, right after this.
    failed = Boolean(problem);
    if (problem) return setImmediate(() => resolve({ thrown: new Error(problem.message) }));
    try {
      resolve(outcomeOf(answer, code, name));
    } catch (thrown) {
      resolve({ thrown }); // The inspector's description of the error, because the error itself cannot be fetched.
    }
  };
  const value = () => {
    writeSync(PERMIT_FD, PERMIT);
    session.post('Runtime.evaluate', request, answered);
    // The signal ends the wait and this function.
    if (!takePermit() && !failed) wait(never, 0, 0, SIGNAL_WAIT_MS);
  };
  Object.defineProperty(globalThis, STEP, { value, configurable: true });
  try {
    stoppable.runInThisContext({ breakOnSigint: true });
  } catch (problem) {
    takePermit(); // It is still there if the signal came from someone else.
    resolve(problem.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? { interrupted: true } : { thrown: problem });
  }
  delete globalThis[STEP];
  return outcome;
}

/** Takes the permit back, unless the agent has taken it. */
function takePermit() {
  try {
    readSync(PERMIT_FD, Buffer.alloc(PERMIT.length));
    return true;
  } catch {
    return false;
  }
}

function outcomeOf({ result, exceptionDetails }, code, name) {
  const value = fetchValue(exceptionDetails?.exception ?? result);
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  if (!exceptionDetails) return { value };
  const { lineNumber, columnNumber, stackTrace } = exceptionDetails;
  // The text of a syntax error does not say where it is.
  const isPlaced = () => String(value.stack).includes(name) || stackTrace?.callFrames[0]?.url.includes(name);
  const place = { name, line: lineNumber, column: columnNumber, code };
  return { thrown: value, syntax: value instanceof SyntaxError && !isPlaced() ? place : null };
}

/** The value itself; the inspector returns only a description of it. */
function fetchValue({ type, objectId, unserializableValue, value }) {
  if (type === 'undefined') return undefined;
  const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
  const call = { objectId: receiver, functionDeclaration: 'function (value) { this(value); }', arguments: [argument] };
  session.post('Runtime.callFunctionOn', call);
  const fetched = received;
  received = undefined;
  return fetched;
}

module.exports = { warm, close, serve, PERMIT_FD };
