/** Runs changes one after the other. */

/** A change depends on the current state, so each one waits for the one before. Otherwise it would undo that one. */
export class Turns {
  #last: Promise<unknown> = Promise.resolve();

  take<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }
}
