/** Checkpoints: where a sandbox can go back to. */

import type { Checkpoint, Timeline } from "./models.js";
import type { Sandbox } from "./sandbox.js";

/** `sandbox.checkpoints`; see `rewind` and `diff` for what they are good for. */
export class Checkpoints {
  readonly #sandbox: Sandbox;

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /** All of them, oldest first, and the one that the sandbox has come from. */
  list(): Promise<Timeline> {
    return this.#sandbox.timeline();
  }

  /** Makes one of this moment; one with a name is kept. */
  create(name?: string): Promise<Checkpoint> {
    return this.#sandbox.checkpoint(name);
  }

  /** Gives one a name, which keeps it, or takes its name away. */
  name(checkpoint: number | string, name: string | null): Promise<Checkpoint> {
    return this.#sandbox.nameCheckpoint(checkpoint, name);
  }
}
