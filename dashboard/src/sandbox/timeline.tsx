import { useSignal } from "@preact/signals";
import { allows, get, patch, post, query, type Schemas } from "../api/client";
import { recentEvents, touch } from "../state/sandboxes";
import { attempt } from "../state/toasts";
import { Button, Card, Empty, Field, Problem, Show, useLoad } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { bytes, clockTime } from "../ui/format";
import { DiffFiles } from "./diff";
import { ForkDialog } from "./forks";
import type { TabProps } from "./page";

type Checkpoint = Schemas["CheckpointView"];

export function Timeline({ sandbox }: TabProps) {
  const base = `/v1/sandboxes/${sandbox.id}`;
  const timeline = useLoad(() => get<Schemas["TimelineView"]>(`${base}/timeline`), [sandbox.id, recentEvents.value[0]?.number]);
  const chosen = useSignal<number | null>(null);
  const diff = useSignal<{ from: string; to: string; title: string } | null>(null);
  const dialog = useSignal<"rewind" | "fork" | "make" | "name" | null>(null);
  const name = useSignal("");
  const make = async () => {
    const done = await attempt("The checkpoint was not made", () => post(`${base}/checkpoints`, name.value ? { name: name.value } : {}), "Checkpoint made");
    void timeline.reload();
    return done;
  };
  const rename = async () => {
    const done = await attempt("The checkpoint was not named", () => patch(`${base}/checkpoints/${chosen.value}`, { name: name.value || null }));
    void timeline.reload();
    return done;
  };
  const rewind = async () => {
    const done = await attempt("The sandbox was not rewound", () => post(`${base}/rewind`, { to: String(chosen.value) }), `Back at checkpoint ${chosen.value}`);
    touch(sandbox.id);
    diff.value = null;
    void timeline.reload();
    return done;
  };
  const text = (one: Checkpoint) => one.text || one.cause;
  return (
    <div class="stack">
      <Card
        title="Checkpoints"
        actions={
          allows("run") && (
            <>
              <Button onClick={timeline.reload}>Refresh</Button>
              {sandbox.status === "running" && <Button onClick={() => { name.value = ""; dialog.value = "make"; }}>Make a checkpoint</Button>}
            </>
          )
        }
      >
        <Show from={timeline}>
          {({ checkpoints, current }) => {
            if (checkpoints.length === 0)
              return <Empty title="No checkpoints yet">{sandbox.checkpoints_kept ? "The next command makes one." : "This sandbox makes none by itself. Make one by hand, or create sandboxes with a checkpoint before every command."}</Empty>;
            const index = checkpoints.findIndex(({ number }) => number === chosen.value);
            const one = checkpoints[index];
            const next = checkpoints.find(({ after }) => after === one?.number);
            return (
              <>
                <ol class="line" tabIndex={0} aria-label="Checkpoints, oldest first">
                  {checkpoints.map((each) => (
                    <li class={each.number === current ? "now" : ""}>
                      <span class="dot" />
                      <button class="moment" aria-pressed={each.number === chosen.value} onClick={() => { chosen.value = each.number; diff.value = null; }}>
                        <strong>{each.name ? `${each.number} · ${each.name}` : each.number}</strong>
                        <span class="what">{text(each)}</span>
                        <small>{clockTime(each.at)} · {bytes(each.size_bytes)}</small>
                      </button>
                    </li>
                  ))}
                  <li class="now"><span class="dot" /><span style={{ padding: "6px 9px", display: "block" }}><strong>Now</strong></span></li>
                </ol>
                {one ? (
                  <div class="stack">
                    <p class="wrap">
                      Checkpoint {one.number} was made before <code>{text(one)}</code>
                    </p>
                    <div class="row">
                      <Button onClick={() => (diff.value = { from: String(one.number), to: next ? String(next.number) : "now", title: `What this step changed` })}>What did this step change?</Button>
                      <Button onClick={() => (diff.value = { from: String(one.number), to: "now", title: `Everything since checkpoint ${one.number}` })}>Everything since</Button>
                      {allows("run") && (
                        <>
                          <Button onClick={() => { name.value = one.name ?? ""; dialog.value = "name"; }}>Name it</Button>
                          <Button onClick={() => (dialog.value = "fork")}>Fork from here</Button>
                          <Button kind="primary" onClick={() => (dialog.value = "rewind")}>Go back to here</Button>
                        </>
                      )}
                    </div>
                  </div>
                ) : (
                  <p class="muted">Select a checkpoint to see what its step changed, to go back to it, or to fork from it.</p>
                )}
              </>
            );
          }}
        </Show>
      </Card>
      {diff.value && <Changes key={`${diff.value.from} ${diff.value.to}`} base={base} from={diff.value.from} to={diff.value.to} title={diff.value.title} close={() => (diff.value = null)} />}
      {dialog.value === "rewind" && (
        <Dialog title={`Go back to checkpoint ${chosen.value}?`} action="Go back" close={() => (dialog.value = null)} submit={rewind}>
          <p>Memory, processes and files return to that moment. The server first makes a checkpoint of now, so you can return.</p>
        </Dialog>
      )}
      {dialog.value === "fork" && chosen.value !== null && <ForkDialog sandbox={sandbox} at={chosen.value} close={() => (dialog.value = null)} />}
      {(dialog.value === "make" || dialog.value === "name") && (
        <Dialog title={dialog.value === "make" ? "New checkpoint" : `Name checkpoint ${chosen.value}`} action="Save" close={() => (dialog.value = null)} submit={dialog.value === "make" ? make : rename}>
          <Field label="Name" hint="Optional"><input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} /></Field>
        </Dialog>
      )}
    </div>
  );
}

function Changes({ base, from, to, title, close }: { base: string; from: string; to: string; title: string; close: () => void }) {
  const diff = useLoad(() => get<Schemas["DiffView"]>(`${base}/diff${query({ from, to })}`), [from, to]);
  return (
    <Card title={title} actions={<Button onClick={close}>Close</Button>}>
      {diff.error ? <Problem error={diff.error} /> : diff.value ? <DiffFiles diff={diff.value} /> : <div class="loading">Comparing …</div>}
    </Card>
  );
}
