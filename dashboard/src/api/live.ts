// Follows a server-sent event stream, and reconnects when it breaks.
import { restoreSession, session } from "./client";

/** Calls `receive` with the data of each event until the returned function is called. */
export function follow<T>(path: string, receive: (data: T) => void, state?: (connected: boolean) => void): () => void {
  let source: EventSource | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let closed = false;
  const open = () => {
    source = new EventSource(path);
    source.onopen = () => state?.(true);
    source.addEventListener("event", (event) => receive(JSON.parse((event as MessageEvent<string>).data) as T));
    source.onerror = () => {
      state?.(false);
      // The browser reconnects by itself after a broken connection, but not after a refusal.
      if (source?.readyState !== EventSource.CLOSED || closed) return;
      source.close();
      timer = setTimeout(async () => {
        // A stream does not say why it was refused; this does.
        if (session.value) await restoreSession();
        if (!closed && session.value) open();
      }, 1000);
    };
  };
  open();
  return () => {
    closed = true;
    clearTimeout(timer);
    source?.close();
  };
}
