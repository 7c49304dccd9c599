/** Volumes: named disks that outlive sandboxes. */

import { type Client, getDefaultClient } from "./client.js";
import { ConflictError, NotFoundError } from "./errors.js";
import type { VolumeInfo } from "./models.js";
import type { VolumeMount } from "./options.js";

/** A named disk. `mount` sets its mount point: `create({ volumes: [volume.mount("/data")] })`. */
export class Volume {
  readonly name: string;
  readonly sizeMb: number;
  readonly #client: Client;

  constructor(info: VolumeInfo, client: Client) {
    this.name = info.name;
    this.sizeMb = info.sizeMb;
    this.#client = client;
  }

  static async create(name: string, sizeGb = 1, client = getDefaultClient()): Promise<Volume> {
    return new Volume(await client.volumes.create(name, Math.max(1, Math.round(sizeGb * 1024))), client);
  }

  static async get(name: string, client = getDefaultClient()): Promise<Volume> {
    return new Volume(await client.volumes.get(name), client);
  }

  /** The volume with this name, created if necessary. An existing one keeps its size. */
  static async getOrCreate(name: string, sizeGb = 1, client = getDefaultClient()): Promise<Volume> {
    try {
      return await Volume.get(name, client);
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
    try {
      return await Volume.create(name, sizeGb, client);
    } catch (error) {
      // Another client created it meanwhile.
      if (error instanceof ConflictError) return Volume.get(name, client);
      throw error;
    }
  }

  static async list(client = getDefaultClient()): Promise<Volume[]> {
    return (await client.volumes.list()).map((info) => new Volume(info, client));
  }

  /** Mounts this volume at a path of a sandbox. */
  mount(path: string, options: { readOnly?: boolean } = {}): VolumeMount {
    return { name: this.name, mount: path, readOnly: options.readOnly ?? false };
  }

  /** Creates a copy of this volume. In a fleet, `node` names the node that gets it. */
  async clone(name: string, options: { node?: string } = {}): Promise<Volume> {
    return new Volume(await this.#client.volumes.copy(this.name, name, "clone", options), this.#client);
  }

  /** Creates a read-only copy of this moment. It can be cloned. */
  async snapshot(name: string): Promise<Volume> {
    return new Volume(await this.#client.volumes.copy(this.name, name, "snapshots"), this.#client);
  }

  /** Deletes it with all its data. Refused while a sandbox has it. */
  async delete(): Promise<void> {
    await this.#client.volumes.delete(this.name);
  }
}
