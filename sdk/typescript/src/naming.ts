/** Converts `exit_code` of the API to `exitCode`. Renames the fields of an object, but not inside their values. */

export type Wire = Record<string, unknown>;

export function fromWire<T>(data: unknown): T {
  const renamed: Wire = {};
  for (const [name, value] of Object.entries(data as Wire)) {
    renamed[name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())] = value;
  }
  return renamed as T;
}

/** Leaves out undefined fields. */
export function toWire(data: object): Wire {
  const renamed: Wire = {};
  for (const [name, value] of Object.entries(data)) {
    if (value !== undefined) renamed[name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)] = value;
  }
  return renamed;
}

/** A list that the server sends directly or as a field of an object. */
export function listOf(data: unknown, field: string): unknown[] {
  return Array.isArray(data) ? data : ((data as Wire)[field] as unknown[]);
}
