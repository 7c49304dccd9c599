/** Whether a refusal to make something is worth another try, and when. No I/O. */

import type { SandlingError } from "./errors.js";

export const DEFAULT_BUDGET_SECONDS = 60;
const LONGEST_SPREAD_SECONDS = 15;

/**
 * Seconds to wait before the next attempt; nothing if there should be none.
 *
 * A full host says so with 503 or 507, and one that is asked too fast with 429 and a time to come back. A 429 without
 * such a time is a quota, which waiting does not change. Several clients are spread out, so that they do not all come
 * back at once.
 */
export function delaySeconds(
  error: SandlingError,
  attempt: number,
  elapsed: number,
  budget: number,
): number | undefined {
  let hint = error.retryAfter;
  if (error.status === 507) hint = Math.max(0.5, hint ?? 0);
  else if (error.status !== 429 && error.status !== 503) return undefined;
  if (hint === undefined || elapsed + hint >= budget) return undefined;
  return hint + Math.random() * Math.min(2 ** attempt, LONGEST_SPREAD_SECONDS);
}
