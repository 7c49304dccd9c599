/** Server-sent events, from bytes. */

export interface ServerEvent {
  name: string;
  data: string;
}

/** Takes bytes as they arrive and returns the events that they complete. */
export class EventDecoder {
  readonly #text = new TextDecoder();
  #rest = "";
  #name = "";
  #data: string[] = [];

  feed(received: Uint8Array): ServerEvent[] {
    const lines = (this.#rest + this.#text.decode(received, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#take(line.endsWith("\r") ? line.slice(0, -1) : line));
  }

  #take(line: string): ServerEvent[] {
    if (line === "") {
      const event = { name: this.#name || "message", data: this.#data.join("\n") };
      const complete = this.#data.length > 0;
      this.#name = "";
      this.#data = [];
      return complete ? [event] : [];
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#name = value;
    if (field === "data") this.#data.push(value);
    return [];
  }
}
