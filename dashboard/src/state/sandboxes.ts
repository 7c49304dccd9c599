// All sandboxes of the workspace. The workspace's event stream says which of them changed.
import { signal } from "@preact/signals";
import { ApiError, get, type Sandbox, type Schemas } from "../api/client";
import { follow } from "../api/live";

export type Event = Schemas["EventView"];

export const sandboxes = signal<Map<string, Sandbox>>(new Map());
export const loaded = signal(false);
export const loadError = signal<Error | null>(null);
export const connected = signal(false);
/** The newest events, newest first. */
export const recentEvents = signal<Event[]>([]);

const MOST_EVENTS = 300;
/** With more changes than this at once, one list is cheaper than single requests. */
const MANY = 8;
const COLLECT_MS = 200;
/** Events that do not change how a sandbox is listed. */
const SILENT = new Set(["sandbox.network", "advice"]);

let dirty = new Set<string>();
let allDirty = false;
let timer: ReturnType<typeof setTimeout> | undefined;
let flushing = false;
/** Sandboxes that an event named and that are not listed yet, and how often each was looked for. */
const expected = new Map<string, number>();
const MOST_LOOKS = 4;

async function loadAll(): Promise<void> {
  try {
    const list = await get<Sandbox[]>("/v1/sandboxes");
    sandboxes.value = new Map(list.map((sandbox) => [sandbox.id, sandbox]));
    loadError.value = null;
  } catch (error) {
    loadError.value = error as Error;
  }
  loaded.value = true;
}

/** Loads a sandbox again soon, together with others. */
export function touch(id: string): void {
  dirty.add(id);
  timer ??= setTimeout(flush, COLLECT_MS);
}

/** Loads all sandboxes again, now. */
export function refresh(): void {
  allDirty = true;
  clearTimeout(timer);
  timer = setTimeout(flush);
}

/** One at a time, so that an older answer never replaces a newer one. */
async function flush(): Promise<void> {
  timer = undefined;
  if (flushing) {
    timer = setTimeout(flush, COLLECT_MS);
    return;
  }
  flushing = true;
  const ids = [...dirty];
  const all = allDirty || ids.length > MANY;
  dirty = new Set();
  allDirty = false;
  await (all ? loadAll() : load(ids));
  flushing = false;
  for (const id of ids) {
    const look = expected.get(id);
    if (look === undefined) continue;
    // The event of a new sandbox may arrive a moment before the sandbox is listed.
    if (sandboxes.value.has(id) || look >= MOST_LOOKS) expected.delete(id);
    else {
      expected.set(id, look + 1);
      touch(id);
    }
  }
}

async function load(ids: string[]): Promise<void> {
  const found = await Promise.all(
    ids.map(async (id): Promise<[string, Sandbox | null | undefined]> => {
      try {
        return [id, await get<Sandbox>(`/v1/sandboxes/${id}`)];
      } catch (error) {
        return [id, error instanceof ApiError && error.status === 404 ? null : undefined];
      }
    }),
  );
  const next = new Map(sandboxes.value);
  for (const [id, sandbox] of found) {
    if (sandbox) next.set(id, sandbox);
    else if (sandbox === null) next.delete(id);
  }
  sandboxes.value = next;
}

/** Follows the workspace until the returned function is called. */
export function startSandboxes(): () => void {
  loaded.value = false;
  sandboxes.value = new Map();
  recentEvents.value = [];
  let first = true;
  const receive = (event: Event) => {
    recentEvents.value = [event, ...recentEvents.value].slice(0, MOST_EVENTS);
    if (SILENT.has(event.type)) return;
    if (event.type === "sandbox.ended") expected.delete(event.sandbox_id);
    else if (!sandboxes.value.has(event.sandbox_id)) expected.set(event.sandbox_id, 1);
    touch(event.sandbox_id);
  };
  const stop = follow<Event>("/v1/events?follow=true&tail=100", receive, (now) => {
    connected.value = now;
    // A gap may have hidden changes.
    if (now && !first) refresh();
    first = false;
  });
  refresh();
  return stop;
}
