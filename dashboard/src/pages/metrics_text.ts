// Reads the server's metrics, which are in Prometheus' text format.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function parse(text: string): Sample[] {
  return text.split("\n").flatMap((line) => {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (!found) return [];
    const labels = Object.fromEntries([...(found[2] ?? "").matchAll(LABEL)].map(([, key, value]) => [key, value.replace(/\\(.)/g, "$1")]));
    return [{ name: found[1], labels, value: Number(found[3]) }];
  });
}

export const CREATE = ["/v1/sandboxes"];
export const EXEC = ["/v1/sandboxes/{id}/exec", "/v1/sandboxes/{id}/exec/stream", "/v1/sandboxes/{id}/repl/sessions/{session}/run", "/v1/sandboxes/{id}/repl/sessions/{session}/run/stream"];

/** Successful POST requests to these routes. */
export function requests(samples: Sample[], routes: string[]): number {
  const counts = samples.filter(({ name, labels }) => name === "sandling_http_requests_total" && labels.method === "POST" && routes.includes(labels.route) && labels.status.startsWith("2"));
  return counts.reduce((sum, { value }) => sum + value, 0);
}

/** The time, in seconds, within which this part of the requests to a route was answered: an upper bound. */
export function quantile(samples: Sample[], routes: string[], part: number): number | null {
  const buckets = new Map<number, number>();
  for (const { name, labels, value } of samples) {
    if (name !== "sandling_http_request_seconds_bucket" || !routes.includes(labels.route)) continue;
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    buckets.set(bound, (buckets.get(bound) ?? 0) + value);
  }
  const sorted = [...buckets].sort(([a], [b]) => a - b);
  const total = sorted.at(-1)?.[1] ?? 0;
  if (total === 0) return null;
  return sorted.find(([, count]) => count >= part * total)?.[0] ?? null;
}
