/** A disposable computer for every AI agent. */

// The declarations need both, whatever the compiler settings of the user.
/// <reference types="node" preserve="true" />
/// <reference lib="esnext.disposable" preserve="true" />

import "./dispose.js";

export { AuditLog, type AuditRecord } from "./audit.js";
export { Browser } from "./browser.js";
export { Checkpoints } from "./checkpoints.js";
export * from "./client.js";
export { home } from "./config.js";
export * from "./contexts.js";
export { Desktop } from "./desktop.js";
export type { DesktopWindow, MouseButton, Position, ScrollDirection, Size } from "./desktop.js";
export * from "./errors.js";
export { Commands, Exec, ExecStream } from "./exec.js";
export type { ExecutionConfig, PoolStatus, RunReport } from "./execution.js";
export type { BranchOutcome, Candidate, ExploreOptions, ExploreResult } from "./explore.js";
export * from "./filesystem.js";
export { ensureLocalServer, stopLocalServer } from "./local.js";
export * from "./models.js";
export { NetworkDefaults, SandboxNetwork } from "./network.js";
export type { GrantedSecret, Network, NetworkDefault, NetworkEvent, NetworkLimits, NetworkMode } from "./network.js";
export type { NetworkDefaultOptions, NetworkOptions, NetworkPolicy, NetworkSource } from "./network.js";
export type { NetworkUsage } from "./network.js";
export type {
  CreateOptions,
  ExecOptions,
  FirstCode,
  ForkOptions,
  Listeners,
  OnVolumes,
  RunCodeOptions,
  SnapshotOptions,
  VolumeMount,
} from "./options.js";
export { type AcquireOptions, Lease, type PoolOptions, SandboxPool } from "./pool.js";
export { type DiffOptions, type Moment, Sandbox } from "./sandbox.js";
export { SandboxSecrets, Secret, type SecretInfo, type SecretOptions, Secrets } from "./secrets.js";
export { type BuildOptions, Template, Templates } from "./templates.js";
export { Terminal, type TerminalOptions } from "./terminal.js";
export { VERSION } from "./version.js";
export { Volume } from "./volumes.js";
