'use strict';
// TypeScript cells: removes the types, and runs what is left. Types are not checked.
//
// Node 22.13 and newer contain what this needs, as an experimental feature.

const { stripTypeScriptTypes } = require('module');

/** The code without its types. Lines and columns stay the same, unless it has syntax that must be translated. */
function withoutTypes(code) {
  if (stripTypeScriptTypes === undefined) {
    const message = `TypeScript needs Node 22.13 or newer, and this template has ${process.version}; use JavaScript, or `
      + 'a template with a newer Node';
    const name = 'TypeScriptUnsupported';
    throw Object.assign(new Error(message), { name, stack: `${name}: ${message}` });
  }
  try {
    return quietly(() => stripTypeScriptTypes(code, { mode: 'strip' }));
  } catch (problem) {
    if (problem.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw syntaxError(problem);
    return withTranslation(code, problem);
  }
}

/** Translates enums, namespaces and parameter properties, which Node 26 no longer does. */
function withTranslation(code, { message, stack }) {
  try {
    return quietly(() => stripTypeScriptTypes(code, { mode: 'transform' }));
  } catch (problem) {
    if (problem.code !== 'ERR_INVALID_ARG_VALUE') throw syntaxError(problem);
    throw syntaxError({ message: `${message}: Node ${process.version} removes types, but translates nothing`, stack });
  }
}

/** Calls a function without Node's warning that it is experimental. The warning would be part of the cell's output. */
function quietly(experimental) {
  const { emitWarning } = process;
  process.emitWarning = () => {};
  try {
    return experimental();
  } finally {
    process.emitWarning = emitWarning;
  }
}

/** An error that shows the code, and not the frames of this file and of Node. */
function syntaxError({ message, stack }) {
  const error = new SyntaxError(message);
  error.stack = `${stack.split('\n\nSyntaxError')[0]}\n\nSyntaxError: ${message}`;
  return error;
}

module.exports = { withoutTypes };
