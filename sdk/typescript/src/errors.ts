/**
 * What can go wrong, as classes. What the server refused carries the HTTP `status`, a stable `code` for programs, and
 * the `requestId` under which the server's log and audit have the request.
 */

export interface Facts {
  status?: number;
  code?: string;
  requestId?: string;
  /** Seconds after which the server wants to be asked again, if it said so. */
  retryAfter?: number;
  /** The answer's other fields. */
  details?: Record<string, unknown>;
  cause?: unknown;
}

/** Base of every error of this package. */
export class SandlingError extends Error {
  readonly status: number | undefined;
  readonly code: string | undefined;
  readonly requestId: string | undefined;
  readonly retryAfter: number | undefined;
  readonly details: Record<string, unknown>;

  constructor(message: string, facts: Facts = {}) {
    super(message, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.name = new.target.name;
    this.status = facts.status;
    this.code = facts.code;
    this.requestId = facts.requestId;
    this.retryAfter = facts.retryAfter;
    this.details = facts.details ?? {};
  }
}

/** There is no server to talk to, and none could be started. */
export class ConfigError extends SandlingError {}
/** The token is missing, unknown, expired or revoked. */
export class AuthError extends SandlingError {}
/** There is no such thing, or it belongs to somebody else. */
export class NotFoundError extends SandlingError {}
/** The request cannot be carried out as it is. */
export class BadRequestError extends SandlingError {}
/** The token's scope, or the guest's file permissions, do not allow it. */
export class ForbiddenError extends BadRequestError {}
/** It does not fit the present state, such as a command in a paused sandbox. */
export class ConflictError extends BadRequestError {}
/** A quota is used up, or requests come too fast. */
export class LimitError extends BadRequestError {}
/** The server or the guest failed. */
export class ServerError extends SandlingError {}
/** The host has no room at the moment. */
export class CapacityError extends ServerError {}
/** A disk is full: the sandbox's own, or the server's; the message says which. Waiting seldom helps. */
export class NoSpaceError extends ServerError {}
/** The server could not be reached, or went away before it answered. */
export class ConnectionError extends SandlingError {}
/** The server did not answer in time. Whether it did what was asked is unknown. */
export class RequestTimeout extends ConnectionError {}

/** An error that happened after something had been printed. */
export class ErrorWithOutput extends SandlingError {
  readonly stdout: string;
  readonly stderr: string;

  constructor(message: string, printed: { stdout: string; stderr: string }, facts: Facts = {}) {
    super(message, facts);
    this.stdout = printed.stdout;
    this.stderr = printed.stderr;
  }
}

/** A command or cell ran into its deadline and was ended. `stdout` and `stderr` hold what it had printed. */
export class SandboxTimeout extends ErrorWithOutput {}

/** A command's output ended without its exit code. Whether it runs on is unknown; `commands.get(id)` can say. */
export class ExecInterrupted extends ErrorWithOutput {
  /** The command's; empty if it was not told. */
  readonly id: string;

  constructor(message: string, id: string, printed: { stdout: string; stderr: string }, facts: Facts = {}) {
    super(message, printed, facts);
    this.id = id;
  }
}

/** A command that had to succeed (`check: true`) did not. */
export class CommandFailed extends ErrorWithOutput {
  readonly exitCode: number;

  constructor(message: string, exitCode: number, printed: { stdout: string; stderr: string }) {
    super(message, printed);
    this.exitCode = exitCode;
  }
}

/** A template could not be built. */
export class TemplateBuildError extends SandlingError {}

/** No branch of an exploration can be the winner. `outcomes` says how each one ended. */
export class ExploreError extends SandlingError {
  readonly outcomes: readonly unknown[];

  constructor(message: string, outcomes: readonly unknown[] = []) {
    super(message);
    this.outcomes = outcomes;
  }
}

const BY_STATUS: Record<number, new (message: string, facts?: Facts) => SandlingError> = {
  401: AuthError,
  403: ForbiddenError,
  404: NotFoundError,
  409: ConflictError,
  429: LimitError,
  503: CapacityError,
  507: CapacityError,
};

type Headers = Record<string, string | string[] | undefined>;

/** The error for an answer that is not a success. `body` is its text, or what that says. */
export function fromAnswer(status: number, headers: Headers, body: string | Record<string, unknown>): SandlingError {
  const { error, code, request_id: requestId, ...details } = typeof body === "string" ? fieldsOf(body) : body;
  const text = typeof body === "string" ? body : "";
  const message = typeof error === "string" && error ? error : text || `the server answered ${status}`;
  const facts: Facts = {
    status,
    code: typeof code === "string" ? code : undefined,
    requestId: typeof requestId === "string" ? requestId : first(headers["x-request-id"]),
    retryAfter: seconds(first(headers["retry-after"])),
    details,
  };
  if (code === "command_timeout") {
    const printed = { stdout: String(details["stdout"] ?? ""), stderr: String(details["stderr"] ?? "") };
    return new SandboxTimeout(message, printed, facts);
  }
  if (code === "no_space") return new NoSpaceError(message, facts);
  const kind = BY_STATUS[status] ?? (status >= 500 ? ServerError : BadRequestError);
  return new kind(message, facts);
}

function fieldsOf(text: string): Record<string, unknown> {
  try {
    const body: unknown = JSON.parse(text);
    return typeof body === "object" && body !== null ? { ...body } : {};
  } catch {
    return {};
  }
}

function first(header: string | string[] | undefined): string | undefined {
  return Array.isArray(header) ? header[0] : header;
}

function seconds(header: string | undefined): number | undefined {
  const value = Number.parseFloat(header ?? "");
  return Number.isFinite(value) ? Math.max(0, value) : undefined;
}
