/** Compares results with the expectations of a case, and replaces references to named results. */

/** Replaces `${name.field}` with fields of named results. */
export function resolve(value, named) {
  if (Array.isArray(value)) return value.map((item) => resolve(item, named));
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, named)]));
  }
  if (typeof value !== "string") return value;
  return value.replace(/\$\{([\w.]+)\}/g, (_, path) => String(lookUp(path, named)));
}

/** Cases use `exit_code`, this SDK uses `exitCode`. */
export function lookUp(path, named) {
  return path.split(".").reduce((value, key) => value[key] ?? value[camel(key)], named);
}

export function camel(name) {
  return name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
}

/** A description of the first difference; empty if there is none. */
export function difference(expected, real, where = "it") {
  if (Array.isArray(expected)) {
    if (!Array.isArray(real) || real.length !== expected.length) return unlike(where, real, expected);
    return first(expected.map((item, index) => difference(item, real[index], `${where}[${index}]`)));
  }
  if (typeof expected === "object" && expected !== null) {
    const word = Object.keys(expected).find((key) => key.startsWith("$"));
    if (word) return special(word, expected[word], real, where);
    if (typeof real !== "object" || real === null) return unlike(where, real, expected);
    const fields = Object.entries(expected);
    return first(fields.map(([key, item]) => difference(item, real[key] ?? real[camel(key)], `${where}.${key}`)));
  }
  return expected === real ? "" : unlike(where, real, expected);
}

const WORDS = {
  $matches: (wanted, real) => typeof real === "string" && pattern(wanted).test(real),
  $atLeast: (wanted, real) => typeof real === "number" && real >= wanted,
  $length: (wanted, real) => real.length === wanted,
  $not: (wanted, real) => difference(wanted, real) !== "",
  $contains: (wanted, real) =>
    typeof real === "string" ? real.includes(wanted) : real.some((item) => difference(wanted, item) === ""),
};

/** JavaScript has no `(?i)`. */
function pattern(text) {
  return text.startsWith("(?i)") ? new RegExp(text.slice(4), "iu") : new RegExp(text, "u");
}

function special(word, wanted, real, where) {
  return WORDS[word](wanted, real) ? "" : `${where} is ${show(real)}, which is not ${word} ${show(wanted)}`;
}

function unlike(where, real, expected) {
  return `${where} is ${show(real)}, not ${show(expected)}`;
}

function show(value) {
  return JSON.stringify(value) ?? String(value);
}

function first(problems) {
  return problems.find(Boolean) ?? "";
}
