import type { Event } from "../state/sandboxes";
import { duration } from "../ui/format";

type Payload = Record<string, unknown>;

const text = (value: unknown): string => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value));

/** One line about an event. */
export function describe(event: Event): string {
  const payload = (event.payload ?? {}) as Payload;
  const kind = event.type.replace(/^sandbox\./, "");
  switch (kind) {
    case "created":
      return `Created from ${text(payload.template)} in ${duration(Number(payload.boot_ms ?? 0))}`;
    case "ended":
      return `Ended: ${text(payload.why) || "no reason recorded"}`;
    case "forked":
      return `Forked from ${text(payload.parent).slice(0, 8)}`;
    case "rewound":
      return `Rewound to checkpoint ${text(payload.to)}`;
    case "network":
      return networkText(payload);
    case "network_changed":
      return "The network policy changed";
    default: {
      const why = text(payload.why);
      const name = kind.replaceAll("_", " ");
      return name[0].toUpperCase() + name.slice(1) + (why ? `: ${why}` : "");
    }
  }
}

function networkText(payload: Payload): string {
  const target = text(payload.name) || text(payload.address) || "an address";
  const port = payload.port ? `:${text(payload.port)}` : "";
  const verdict = payload.verdict as Record<string, { code?: string }> | string;
  if (typeof verdict === "string") return `${verdict === "allowed" ? "Allowed" : verdict} ${target}${port}`;
  const [[name, detail]] = Object.entries(verdict ?? { unknown: {} });
  return `${name === "refused" ? "Refused" : "Failed"} ${target}${port}${detail?.code ? ` (${detail.code.replaceAll("_", " ")})` : ""}`;
}

export function isRefusal(event: Event): boolean {
  const verdict = (event.payload as Payload | undefined)?.verdict;
  return event.type === "sandbox.network" && typeof verdict === "object" && verdict !== null && "refused" in verdict;
}

/** Why a sandbox ended; nothing if the event is another one. */
export function endReason(event: Event): string | null {
  return event.type === "sandbox.ended" ? text((event.payload as Payload).why) : null;
}
