/** Timers for deadlines, however far away. */

/** What a timer of Node's can wait; with more it would go off at once. */
const LONGEST_MS = 2 ** 31 - 1;

/** A timer for a deadline; none for one that is further away than timers go, or for ever. */
export function deadlineTimer(ms: number, passed: () => void): NodeJS.Timeout | undefined {
  return ms > LONGEST_MS ? undefined : setTimeout(passed, ms);
}
