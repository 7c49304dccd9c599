/** Node 18 has no `Symbol.asyncDispose`. Compiled `await using` looks for it under this name. */
const symbols = Symbol as unknown as { asyncDispose?: symbol };
symbols.asyncDispose ??= Symbol.for("nodejs.asyncDispose");

export {};
