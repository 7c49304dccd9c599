/** `.dockerignore`: which files of a directory are no part of a template's build. */

import { readFile } from "node:fs/promises";
import { join } from "node:path";

interface Pattern {
  keeps: boolean;
  expression: RegExp;
}

/** The patterns of a `.dockerignore`, in their order. */
export class DockerIgnore {
  readonly #patterns: Pattern[] = [];

  constructor(text = "") {
    for (const line of text
      .replace(/^\ufeff/, "")
      .split("\n")
      .map((line) => line.trim())) {
      const keeps = line.startsWith("!");
      const parts = normalParts(keeps ? line.slice(1).trim() : line);
      if (parts.length === 0 || line.startsWith("#")) continue;
      try {
        this.#patterns.push({ keeps, expression: expressionOf(parts) });
      } catch (error) {
        throw new SyntaxError(`the line ${JSON.stringify(line)} of .dockerignore is no pattern`, { cause: error });
      }
    }
  }

  static async of(directory: string): Promise<DockerIgnore> {
    try {
      return new DockerIgnore(await readFile(join(directory, ".dockerignore"), "utf8"));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      return new DockerIgnore();
    }
  }

  /** Whether a path is left out. The last pattern that matches it, or a directory above it, decides. */
  ignores(path: string): boolean {
    const last = this.#patterns.filter(({ expression }) => expression.test(`${path}/`)).pop();
    return last !== undefined && !last.keeps;
  }

  /** Whether something below an ignored directory may be a part of the build. */
  get hasExceptions(): boolean {
    return this.#patterns.some(({ keeps }) => keeps);
  }
}

/** Removes `.`, and goes back for `..`. */
function normalParts(pattern: string): string[] {
  const parts: string[] = [];
  for (const part of pattern.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return parts;
}

/** Matches the beginning of a path that ends with a slash. `**` stands for any number of directories. */
function expressionOf(parts: string[]): RegExp {
  const all = parts.map((part) => (part === "**" ? "(?:[^/]+/)*" : `${expressionOfPart(part)}/`));
  return new RegExp(`^${all.join("")}`, "su");
}

function expressionOfPart(pattern: string): string {
  return pattern.replace(/\\.|\[\^?(?:\\.|[^\]\\])+\]|./gsu, (token) => {
    if (token === "*") return "[^/]*";
    if (token === "?") return "[^/]";
    if (token.length > 2 && token.startsWith("[")) {
      const isNegated = token.startsWith("[^");
      return `(?!/)[${isNegated ? "^" : ""}${token.slice(isNegated ? 2 : 1, -1).replaceAll("[", "\\[")}]`;
    }
    return token.replace(/^\\(?=.)/su, "").replace(/[\^$.*+?()[\]{}|/\\]/gu, "\\$&");
  });
}
