/** Whether and when to retry a refused create. No I/O. */

import type { SandlingError } from "./errors.js";

export const DEFAULT_BUDGET_SECONDS = 60;
const LONGEST_SPREAD_SECONDS = 15;

/**
 * Seconds to wait before the next attempt; `undefined` if there should be none.
 *
 * A full host answers with 503 or 507. A rate limit answers with 429 and `Retry-After`. A 429 without it is a quota,
 * which waiting does not change. A random part keeps many clients from retrying at the same moment.
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
