'use strict';
// A context: cells that run one after another in one global scope, whose values and errors go back as data.
//
// V8's own REPL mode evaluates the cells, because only it lets `let`, `const` and `class` be declared anew and `await`
// stand anywhere; it is reached through an inspector session within the process, to which nothing outside can connect.

const inspector = require('inspector');
const Module = require('module');
const net = require('net');
const path = require('path');
const { Writable } = require('stream');
const vm = require('vm');
const { bundle, describe, line, withoutImports } = require('./node_results.js');
const { reseed, dropCaches } = require('./node_reseed.js');

const STEP = Symbol.for('sandling.step');
// Runs STEP so that a signal can stop it even in an endless loop.
const stoppable = new vm.Script(`globalThis[Symbol.for('sandling.step')]()`, { filename: 'sandling' });

const session = new inspector.Session();
let receiver = null;
let received;

/** Connects to the evaluator and uses it once, since the first use is the slow one. */
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

/** Runs the cells that come in by `fd`, until it is closed. `pending` has come already. */
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
    this.interrupt = null;
    this.busy = false;
  }

  /** What user code expects to find, and what it must not be able to end. */
  prepareProcess() {
    const home = path.join(process.cwd(), '[cell]');
    const module = new Module(home);
    module.filename = home;
    module.paths = Module._nodeModulePaths(process.cwd());
    // Compiled under the user's folder, so that what it imports is found from there.
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
    process.on('SIGINT', () => this.interrupt?.());
    process.on('uncaughtException', (problem) => process.stderr.write(describe(problem).text));
  }

  receive(message) {
    if (message.reseed !== undefined) {
      reseed(message.reseed);
      dropCaches();
    } else if (message.cell !== undefined) {
      this.waiting.push(message);
      this.runNext();
    }
  }

  async runNext() {
    if (this.busy) return;
    const next = this.waiting.shift();
    if (next === undefined) return;
    this.busy = true;
    await this.run(next.cell, next.code, next.env);
    this.busy = false;
    this.runNext();
  }

  /** `environment` is there while the cell runs, and gone afterwards. */
  async run(number, code, environment = {}) {
    const before = Object.keys(environment).map((name) => [name, process.env[name]]);
    Object.assign(process.env, environment);
    const interrupted = new Promise((resolve) => { this.interrupt = () => resolve({ interrupted: true }); });
    let outcome = await Promise.race([evaluate(code, `[cell-${number}]`), interrupted]);
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
    await Promise.all([written(process.stdout), written(process.stderr)]);
    this.send({ done: number, status, error });
  }
}

/** When all that was printed is in the pipe; Node keeps what did not fit at once. */
function written(stream) {
  if (!stream.writableLength || stream.destroyed) return null;
  return new Promise((resolve) => Writable.prototype.write.call(stream, '', resolve));
}

/** Runs code in the global scope. Answers `{value}`, `{thrown}` or `{interrupted}`. */
function evaluate(code, name) {
  let resolve;
  const outcome = new Promise((resolver) => { resolve = resolver; });
  const request = { expression: `${withoutImports(code)}\n//# sourceURL=${name}`, replMode: true, objectGroup: 'cell' };
  const answered = (problem, answer) => {
    try {
      resolve(problem ? { thrown: new Error(problem.message) } : outcomeOf(answer, code, name));
    } catch (thrown) {
      resolve({ thrown }); // By what the user's own error has instead of properties.
    }
  };
  const value = () => session.post('Runtime.evaluate', request, answered);
  Object.defineProperty(globalThis, STEP, { value, configurable: true });
  try {
    stoppable.runInThisContext({ breakOnSigint: true });
  } catch (problem) {
    resolve(problem.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? { interrupted: true } : { thrown: problem });
  }
  delete globalThis[STEP];
  return outcome;
}

function outcomeOf({ result, exceptionDetails }, code, name) {
  const value = fetchValue(exceptionDetails?.exception ?? result);
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  if (!exceptionDetails) return { value };
  const { lineNumber, columnNumber, stackTrace } = exceptionDetails;
  // A syntax error's own text does not say where it is.
  const isPlaced = () => String(value.stack).includes(name) || stackTrace?.callFrames[0]?.url.includes(name);
  const place = { name, line: lineNumber, column: columnNumber, code };
  return { thrown: value, syntax: value instanceof SyntaxError && !isPlaced() ? place : null };
}

/** The value itself, of which the inspector only gives a description. */
function fetchValue({ type, objectId, unserializableValue, value }) {
  if (type === 'undefined') return undefined;
  const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
  const call = { objectId: receiver, functionDeclaration: 'function (value) { this(value); }', arguments: [argument] };
  session.post('Runtime.callFunctionOn', call);
  const fetched = received;
  received = undefined;
  return fetched;
}

module.exports = { warm, close, serve };
