/** Checkpoints: saved moments that a sandbox can go back to. */

import type { Checkpoint, Timeline } from "./models.js";
import type { Sandbox } from "./sandbox.js";

/** `sandbox.checkpoints`; use them with `rewind` and `diff`. */
export class Checkpoints {
  readonly #sandbox: Sandbox;

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /** All checkpoints, oldest first, and the one that the sandbox came from. */
  list(): Promise<Timeline> {
    return this.#sandbox.timeline();
  }

  /** Makes a checkpoint now. One with a name is kept. */
  create(name?: string): Promise<Checkpoint> {
    return this.#sandbox.checkpoint(name);
  }

  /** Names a checkpoint, which keeps it, or removes its name. */
  name(checkpoint: number | string, name: string | null): Promise<Checkpoint> {
    return this.#sandbox.nameCheckpoint(checkpoint, name);
  }
}
