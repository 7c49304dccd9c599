import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { allows, ApiError, del, get, post, type Sandbox } from "../api/client";
import { nameOf } from "../pages/sandboxes";
import { href, navigate } from "../router";
import { loaded, sandboxes, touch } from "../state/sandboxes";
import { attempt } from "../state/toasts";
import { Badge, Button, Empty, Page, Problem } from "../ui/basics";
import { Dialog } from "../ui/dialog";
import { lazy } from "../ui/lazy";
import { Boundary } from "./boundary";
import { Commands } from "./commands";
import { Console, EventList } from "./events";
import { ForkDialog, Forks } from "./forks";
import { Network } from "./network";
import { Ports } from "./ports";
import { Summary } from "./summary";
import { Terminals } from "./terminals";
import { Timeline } from "./timeline";

const Files = lazy(async () => (await import("./files")).Files);
const Notebook = lazy(async () => (await import("./notebook")).Notebook);

export interface TabProps {
  sandbox: Sandbox;
}

/** The name of each tab, what it shows, and whether that needs the running machine. */
const TABS: Record<string, [string, (props: TabProps) => preact.JSX.Element, boolean]> = {
  summary: ["Summary", Summary, false],
  terminal: ["Terminal", Terminals, true],
  commands: ["Commands", Commands, true],
  notebook: ["Notebook", (props) => <Notebook {...props} />, true],
  files: ["Files", (props) => <Files {...props} />, true],
  network: ["Network", Network, false],
  timeline: ["Timeline", Timeline, false],
  forks: ["Forks", Forks, false],
  ports: ["Ports", Ports, true],
  events: ["Events", EventList, false],
  console: ["Console", Console, true],
  boundary: ["Boundary", Boundary, false],
};

export function SandboxPage({ id, tab }: { id: string; tab: string }) {
  const known = sandboxes.value.get(id);
  const problem = useSignal<Error | null>(null);
  const dialog = useSignal<"end" | "fork" | "snapshot" | null>(null);
  useEffect(() => {
    if (known || !loaded.value) return;
    get<Sandbox>(`/v1/sandboxes/${encodeURIComponent(id)}`).then(
      (found) => (sandboxes.value = new Map(sandboxes.value).set(id, found)),
      (error: Error) => (problem.value = error),
    );
  }, [id, Boolean(known), loaded.value]);
  if (!known) {
    if (problem.value instanceof ApiError && problem.value.status === 404)
      return (
        <Empty title="This sandbox does not exist">
          <p>It has ended, or it belongs to another workspace.</p>
          <a class="button" href={href("/sandboxes")}>All sandboxes</a>
        </Empty>
      );
    return problem.value ? <Problem error={problem.value} /> : <div class="loading">Loading …</div>;
  }
  const change = (action: string, done: string) => () => attempt("This did not work", () => post(`/v1/sandboxes/${id}/${action}`), done).then(() => touch(id));
  const { status } = known;
  const [, Tab, needsMachine] = TABS[tab] ?? TABS.summary;
  const actions = allows("run") && (
    <>
      {status === "running" && <Button onClick={change("pause", "Paused")}>Pause</Button>}
      {status === "paused" && <Button kind="primary" onClick={change("resume", "Resumed")}>Resume</Button>}
      {status === "hibernated" ? <Button kind="primary" onClick={change("wake", "Awake")}>Wake</Button> : <Button onClick={change("hibernate", "Hibernated")}>Hibernate</Button>}
      <Button onClick={() => (dialog.value = "fork")}>Fork</Button>
      <Button onClick={() => (dialog.value = "snapshot")}>Snapshot</Button>
      <Button kind="danger" onClick={() => (dialog.value = "end")}>End</Button>
    </>
  );
  const end = async () => {
    const done = await attempt("The sandbox was not ended", () => del(`/v1/sandboxes/${id}`), `${nameOf(known)} ended`);
    if (done) navigate("/sandboxes");
    touch(id);
    return done;
  };
  return (
    <Page title={<span class="row"><span class="wrap">{nameOf(known)}</span> <Badge status={status} /></span>} actions={actions}>
      <nav class="tabs" aria-label="Parts of the sandbox">
        {Object.entries(TABS).map(([key, [title]]) => (
          <a href={href(`/sandboxes/${id}/${key}`)} aria-current={key === tab ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      {needsMachine && status !== "running" ? (
        <Empty title={`The sandbox is ${status}`}>
          <p>This page needs its running machine.</p>
          {status === "hibernated" && allows("run") && <Button kind="primary" onClick={change("wake", "Awake")}>Wake</Button>}
          {status === "paused" && allows("run") && <Button kind="primary" onClick={change("resume", "Resumed")}>Resume</Button>}
        </Empty>
      ) : needsMachine && !allows("run") && tab !== "files" ? (
        <Empty title="This page needs the scope run">Your token may only look.</Empty>
      ) : (
        <Tab sandbox={known} />
      )}
      {dialog.value === "fork" && <ForkDialog sandbox={known} close={() => (dialog.value = null)} />}
      {dialog.value === "snapshot" && <SnapshotDialog id={id} close={() => (dialog.value = null)} />}
      {dialog.value === "end" && (
        <Dialog title={`End ${nameOf(known)}?`} action="End" danger close={() => (dialog.value = null)} submit={end}>
          <p>Its files and processes are deleted. This cannot be undone.</p>
        </Dialog>
      )}
    </Page>
  );
}

function SnapshotDialog({ id, close }: { id: string; close: () => void }) {
  const name = useSignal("");
  const submit = () => attempt("The snapshot was not created", () => post(`/v1/sandboxes/${id}/snapshots`, name.value ? { name: name.value } : {}), "Snapshot created");
  return (
    <Dialog title="New snapshot" action="Create" close={close} submit={submit}>
      <p>A snapshot holds the memory and the disk. The sandbox continues.</p>
      <label class="field">
        <span>Name</span>
        <input value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} />
        <small>Optional</small>
      </label>
    </Dialog>
  );
}
