// The page that the address names. Addresses below /dashboard/ all lead to the same file.
import { signal } from "@preact/signals";

const BASE = "/dashboard";

function current(): string {
  const path = location.pathname;
  return path.startsWith(BASE) ? path.slice(BASE.length) || "/" : "/";
}

/** The path below the dashboard's address, e.g. `/sandboxes/3f2a/files`. */
export const path = signal(current());

export function href(to: string): string {
  return BASE + to;
}

export function navigate(to: string, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", href(to));
  path.value = current();
  if (!replace) window.scrollTo(0, 0);
}

export function startRouter(): void {
  addEventListener("popstate", () => (path.value = current()));
  // Links stay links: they can be copied and opened in another tab.
  document.addEventListener("click", (event) => {
    const link = (event.target as Element).closest?.("a");
    if (!link || event.defaultPrevented || event.button !== 0 || link.target || link.hasAttribute("download")) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.origin !== location.origin || !link.pathname.startsWith(BASE + "/")) return;
    event.preventDefault();
    navigate(link.pathname.slice(BASE.length));
  });
}
