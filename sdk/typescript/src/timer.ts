/** Timers for deadlines of any length. */

/** The longest time of Node's timers. A longer timer would fire at once. */
const LONGEST_MS = 2 ** 31 - 1;

/** A timer for a deadline; none if the deadline is infinite or too far away for a timer. */
export function deadlineTimer(ms: number, passed: () => void): NodeJS.Timeout | undefined {
  return ms > LONGEST_MS ? undefined : setTimeout(passed, ms);
}
