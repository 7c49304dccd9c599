'use strict';
// Values and errors of a cell as data, and the conversion of its imports for V8's REPL mode.

const path = require('path');
const util = require('util');

// The limit for a bundle. The rest of its line on the control socket fits into the difference to 8 MiB.
const LIMIT = (8 << 20) - 1024;
const ERROR_LIMIT = 1 << 20;
const RICH = Symbol.for('Jupyter.display');
const DRIVER_FILE = `${escape(__dirname + path.sep)}node[a-z_]*\\.js`;
const DRIVER_FRAME = new RegExp(`^ {4}at .*(${DRIVER_FILE}|\\(?node:(inspector|vm)|\\(?sandling):\\d+`);
// Skips strings, templates and comments; then matches `import(` and import declarations.
const IMPORTS = new RegExp(
  [
    /("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\[^]|[^`\\])*`|\/\/.*|\/\*[^]*?\*\/)/,
    /(?<![\w$.])import\s*(\()/,
    /(?<![\w$.])import\s+(?:([\w$\s{},*]+?)\s*from\s*)?("[^"\n]*"|'[^'\n]*')/,
  ].map((part) => part.source).join('|'),
  'g',
);

/** All representations of a value; `text/plain` is always there. */
function bundle(value) {
  const found = { 'text/plain': util.inspect(value, { maxStringLength: LIMIT }) };
  if (isPlain(value)) {
    try {
      found['application/json'] = JSON.stringify(value);
    } catch {
      // Cycles and big integers have no JSON form; their text is enough.
    }
  }
  if (typeof value?.[RICH] === 'function') {
    for (const [mime, content] of Object.entries(value[RICH]())) {
      if (content != null) found[mime] = asText(content);
    }
  }
  return fit(found);
}

function isPlain(value) {
  if (Array.isArray(value)) return true;
  if (value === null || typeof value !== 'object' || util.types.isProxy(value)) return false;
  const prototype = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

function asText(content) {
  if (typeof content === 'string') return content;
  return content instanceof Uint8Array ? Buffer.from(content).toString('base64') : JSON.stringify(content);
}

/** The bundle, or a note about what was too large. */
function fit(found) {
  const sizes = Object.entries(found).map(([mime, text]) => [mime, Buffer.byteLength(JSON.stringify(text) ?? '')]);
  if (sizes.reduce((total, [, size]) => total + size, 0) <= LIMIT) return found;
  const listed = sizes.map(([mime, size]) => `${mime} of ${size} bytes`).join(', ');
  return { 'text/plain': `${found['text/plain'].slice(0, 10000)}\n[cut: ${listed}; a result may have ${LIMIT} bytes]` };
}

/** A thrown value as data. `syntax` is the place of a syntax error, which its own text lacks. */
function describe(thrown, syntax = null) {
  try {
    const isError = util.types.isNativeError(thrown);
    const { name, value, text } = isError ? describeError(thrown, syntax) : describeValue(thrown);
    return { name: cut(name), value: cut(value), text: cut(text) };
  } catch {
    const value = 'what was thrown cannot be shown';
    return { name: 'Uncaught', value, text: `Uncaught: ${value}\n` };
  }
}

function describeError(thrown, syntax) {
  const name = String(thrown.name);
  const value = String(thrown.message);
  const lines = util.inspect(thrown).split('\n').filter((line) => !DRIVER_FRAME.test(line));
  return { name, value, text: syntax ? `${pointAt(syntax)}\n${name}: ${value}\n` : lines.join('\n') + '\n' };
}

function describeValue(thrown) {
  const value = util.inspect(thrown);
  return { name: 'Uncaught', value, text: `Uncaught ${value}\n` };
}

function pointAt({ name, line, column, code }) {
  const lines = code.split('\n');
  const shown = Math.min(line, lines.length - 1);
  const indent = shown === line ? column : lines[shown].length;
  return `${name}:${shown + 1}\n${lines[shown]}\n${' '.repeat(indent)}^\n`;
}

function cut(text) {
  if (text.length <= ERROR_LIMIT) return text;
  const half = ERROR_LIMIT / 2;
  return `${text.slice(0, half)}\n[${text.length - ERROR_LIMIT} characters cut]\n${text.slice(-half)}`;
}

/** The code with its imports as awaited calls, because REPL mode has no imports. Line numbers do not change. */
function withoutImports(code) {
  if (!/\bimport\b/.test(code)) return code;
  return code.replace(IMPORTS, (whole, skipped, call, names, from) => {
    if (skipped) return whole;
    if (call) return '__import(';
    return declaration(names, from) + ';' + '\n'.repeat(whole.split('\n').length - 1);
  });
}

/** `import a, { b as c } from 'd'` as `const { default: a, b: c } = await __import('d')`. */
function declaration(names = '', from) {
  const everything = names.match(/\*\s*as\s+([\w$]+)/)?.[1];
  const byDefault = names.match(/^\s*([\w$]+)/)?.[1];
  const parts = (names.match(/\{([^}]*)\}/)?.[1] ?? '').split(',').map((part) => part.trim()).filter(Boolean);
  const pattern = parts.map((part) => part.replace(/\s+as\s+/, ': '));
  if (byDefault) pattern.unshift(`default: ${byDefault}`);
  const loaded = `await __import(${from})`;
  if (everything && byDefault) return `const ${everything} = ${loaded}, { ${pattern[0]} } = ${everything}`;
  if (everything) return `const ${everything} = ${loaded}`;
  return pattern.length ? `const { ${pattern.join(', ')} } = ${loaded}` : loaded;
}

/** One line for the agent, whose parser refuses a lone surrogate. */
function line(message) {
  const isHalf = (value) => typeof value === 'string' && /[\ud800-\udfff]/.test(value);
  const repair = (_key, value) => (isHalf(value) ? Buffer.from(value).toString() : value);
  return JSON.stringify(message, repair) + '\n';
}

function escape(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

module.exports = { bundle, describe, line, withoutImports };
