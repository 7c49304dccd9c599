// Parts that are large and that many visits do not need.
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Problem } from "./basics";

/** A component whose code is loaded when it is first shown. */
export function lazy<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let found: ComponentType<P> | undefined;
  return function Lazy(props: P) {
    const [, setRound] = useState(0);
    const [error, setError] = useState<Error>();
    useEffect(() => {
      if (!found)
        load().then(
          (component) => {
            found = component;
            setRound((round) => round + 1);
          },
          () => setError(new Error("a part of the dashboard could not be loaded; reload the page")),
        );
    }, []);
    if (error) return <Problem error={error} />;
    if (!found) return <div class="loading">Loading …</div>;
    const Found = found;
    return <Found {...props} />;
  };
}

export const Editor = lazy(async () => (await import("./editor")).Editor);
export const Chart = lazy(async () => (await import("./chart")).Chart);
export const Terminal = lazy(async () => (await import("./terminal")).Terminal);
