import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "./basics";

interface DialogProps {
  title: string;
  close: () => void;
  children: ComponentChildren;
  /** Runs when the form is sent. The dialog closes if it returns true. */
  submit?: () => Promise<boolean>;
  action?: string;
  danger?: boolean;
  wide?: boolean;
}

/** A modal dialog. The browser keeps the focus in it, and Escape closes it. */
export function Dialog({ title, close, children, submit, action = "Save", danger, wide }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (!element.current?.open) element.current?.showModal();
  }, []);
  const send = async (event: Event) => {
    event.preventDefault();
    if (!submit || busy) return;
    setBusy(true);
    const done = await submit();
    setBusy(false);
    if (done) close();
  };
  return (
    <dialog ref={element} class={wide ? "dialog dialog-wide" : "dialog"} aria-label={title} onClose={close}>
      <form onSubmit={(event) => void send(event)}>
        <header>
          <h2>{title}</h2>
          <button type="button" class="icon-button" aria-label="Close" onClick={close}>
            ✕
          </button>
        </header>
        <div class="dialog-body">{children}</div>
        <footer class="row">
          <Button onClick={close}>{submit ? "Cancel" : "Close"}</Button>
          {submit && (
            <button type="submit" class={`button ${danger ? "button-danger" : "button-primary"}`} disabled={busy}>
              {busy ? "Working …" : action}
            </button>
          )}
        </footer>
      </form>
    </dialog>
  );
}
