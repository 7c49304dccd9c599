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
    throw Object.assign(new Error(message), { name: 'TypeScriptUnsupported' });
  }
  try {
    return quietly(() => stripTypeScriptTypes(code, { mode: 'strip' }));
  } catch (problem) {
    if (problem.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw syntaxError(problem);
    return withTranslation(code, problem);
  }
}

/** Translates enums, namespaces and parameter properties. Not every version of Node can. */
function withTranslation(code, unsupported) {
  try {
    return quietly(() => stripTypeScriptTypes(code, { mode: 'transform' }));
  } catch (problem) {
    throw syntaxError(problem.code === 'ERR_INVALID_ARG_VALUE' ? unsupported : problem);
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

/** The error of the cell's author: without the frames of this file and of Node. */
function syntaxError({ message, stack }) {
  const error = new SyntaxError(message);
  error.stack = stack.split('\n    at ')[0];
  return error;
}

module.exports = { withoutTypes };
