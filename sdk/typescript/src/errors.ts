/**
 * The errors of this package. If the server refused a request, the error has the HTTP `status`, a stable `code` for
 * programs, and the `requestId` of the server's log and audit log.
 */

export interface Facts {
  status?: number;
  code?: string;
  requestId?: string;
  /** Seconds to wait before a retry, if the server said so. */
  retryAfter?: number;
  /** The other fields of the answer. */
  details?: Record<string, unknown>;
  cause?: unknown;
}

/** Base class of all errors of this package. */
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
/** It does not exist, or belongs to another workspace. */
export class NotFoundError extends SandlingError {}
/** The request is invalid. */
export class BadRequestError extends SandlingError {}
/** The token's scope, or the guest's file permissions, do not allow it. */
export class ForbiddenError extends BadRequestError {}
/** The current state does not allow it, such as a command in a paused sandbox. */
export class ConflictError extends BadRequestError {}
/** A quota or a rate limit is exceeded. */
export class LimitError extends BadRequestError {}
/** The server or the guest failed. */
export class ServerError extends SandlingError {}
/** The host has no capacity at the moment. */
export class CapacityError extends ServerError {}
/** A disk is full, of the sandbox or of the server; the message says which. Waiting seldom helps. */
export class NoSpaceError extends ServerError {}
/** The server could not be reached, or the connection was lost before it answered. */
export class ConnectionError extends SandlingError {}
/** The server did not answer in time. It may still have carried out the request. */
export class RequestTimeout extends ConnectionError {}

/** An error that carries the output so far. */
export class ErrorWithOutput extends SandlingError {
  readonly stdout: string;
  readonly stderr: string;

  constructor(message: string, printed: { stdout: string; stderr: string }, facts: Facts = {}) {
    super(message, facts);
    this.stdout = printed.stdout;
    this.stderr = printed.stderr;
  }
}

/** A command or cell reached its timeout and was ended. `stdout` and `stderr` hold what it had printed. */
export class SandboxTimeout extends ErrorWithOutput {}

/** A command's output ended without an exit code. It may still be running; `commands.get(id)` tells. */
export class ExecInterrupted extends ErrorWithOutput {
  /** The ID of the command; empty if it is unknown. */
  readonly id: string;

  constructor(message: string, id: string, printed: { stdout: string; stderr: string }, facts: Facts = {}) {
    super(message, printed, facts);
    this.id = id;
  }
}

/** A command with `check: true` did not exit with 0. */
export class CommandFailed extends ErrorWithOutput {
  readonly exitCode: number;

  constructor(message: string, exitCode: number, printed: { stdout: string; stderr: string }) {
    super(message, printed);
    this.exitCode = exitCode;
  }
}

/** A template could not be built. */
export class TemplateBuildError extends SandlingError {}

/** No branch of an exploration can win. `outcomes` says how each one ended. */
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

/** The error for an unsuccessful answer. `body` is its JSON or its text. */
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
