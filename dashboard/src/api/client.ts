// Requests to the server. The browser sends the session's cookie; changes also carry the CSRF token.
import { signal } from "@preact/signals";
import type { components } from "./schema";

export type Schemas = components["schemas"];
export type Sandbox = Schemas["SandboxView"];
export type Template = Schemas["TemplateView"];

export type Session = Schemas["DashboardSession"];

/** `undefined` until the first answer, `null` when nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined);
/** Why the user must sign in again. */
export const signedOutReason = signal("");

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

const SCOPES = ["read", "run", "admin", "operator"];

/** Whether the session's scope includes this one. */
export function allows(scope: "read" | "run" | "admin" | "operator"): boolean {
  return SCOPES.indexOf(session.value?.user.scope ?? "") >= SCOPES.indexOf(scope);
}

export function segment(text: string): string {
  return encodeURIComponent(text);
}

export function query(values: Record<string, string | number | boolean | undefined>): string {
  const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(pairs.map(([key, value]) => [key, String(value)])).toString();
  return text && `?${text}`;
}

/** Sends a request and returns its response, or throws what the server says is wrong. */
export async function send(method: string, path: string, body?: unknown, more: RequestInit = {}): Promise<Response> {
  const headers = new Headers(more.headers);
  if (method !== "GET" && session.value) headers.set("x-sandling-csrf", session.value.csrf_token);
  const isBytes = body instanceof Blob || body instanceof ArrayBuffer || typeof body === "string";
  if (body !== undefined && !isBytes) headers.set("content-type", "application/json");
  let response: Response;
  try {
    response = await fetch(path, {
      ...more,
      method,
      headers,
      body: body === undefined ? undefined : isBytes ? (body as BodyInit) : JSON.stringify(body),
    });
  } catch (error) {
    if ((error as Error).name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "the server does not answer; check that `sandling serve` is running");
  }
  if (response.ok) return response;
  const error = await failure(response);
  if (response.status === 401 && session.value) {
    signedOutReason.value = "Your session has ended: its token was revoked or has expired.";
    session.value = null;
  }
  throw error;
}

async function failure(response: Response): Promise<ApiError> {
  try {
    const body = (await response.json()) as { error?: string; code?: string };
    return new ApiError(response.status, body.code ?? "unknown", body.error ?? response.statusText);
  } catch {
    return new ApiError(response.status, "unknown", `the server answered ${response.status}`);
  }
}

async function json<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await send(method, path, body);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

export const get = <T>(path: string) => json<T>("GET", path);
export const post = <T>(path: string, body: unknown = {}) => json<T>("POST", path, body);
export const put = <T>(path: string, body: unknown) => json<T>("PUT", path, body);
export const patch = <T>(path: string, body: unknown) => json<T>("PATCH", path, body);
export const del = (path: string) => json<void>("DELETE", path);

export interface StreamEvent {
  event: string;
  /** Empty where the event is text. */
  data: Record<string, unknown>;
  text: string;
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return value && typeof value === "object" ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Sends a request whose response is an event stream, and yields its events. */
export async function* stream(path: string, body: unknown, abort?: AbortSignal): AsyncGenerator<StreamEvent> {
  const response = await send("POST", path, body, { signal: abort });
  yield* events(response);
}

/** The events of a response. */
export async function* events(response: Response): AsyncGenerator<StreamEvent> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    pending += value;
    for (let end = pending.indexOf("\n\n"); end >= 0; end = pending.indexOf("\n\n")) {
      const lines = pending.slice(0, end).split("\n");
      pending = pending.slice(end + 2);
      const event = lines.find((line) => line.startsWith("event: "))?.slice(7) ?? "message";
      const text = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (text !== undefined) yield { event, data: parsed(text), text };
    }
  }
}

export async function restoreSession(): Promise<void> {
  try {
    session.value = await get<Session>("/v1/dashboard/session");
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 401) signedOutReason.value = (error as Error).message;
    session.value = null;
  }
}

export async function signIn(credential: { token: string } | { code: string }): Promise<void> {
  session.value = await post<Session>("/v1/dashboard/session", credential);
  signedOutReason.value = "";
}

export async function signOut(): Promise<void> {
  await del("/v1/dashboard/session");
  session.value = null;
}
