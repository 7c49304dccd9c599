import { type Schemas } from "../api/client";
import { Badge, Empty } from "../ui/basics";
import { bytes } from "../ui/format";

type Diff = Schemas["DiffView"];

/** Files that differ between all sandboxes, because each has its own identity. They come last. */
const IDENTITY = ["etc/hostname", "etc/hosts", "etc/machine-id"];

/** The lines of a patch without its head, which repeats the path. */
function lines(patch: string): string[] {
  const all = patch.replace(/\n$/, "").split("\n");
  const start = all.findIndex((line) => line.startsWith("@@"));
  return start < 0 ? all : all.slice(start);
}

function kind(line: string): string {
  if (line.startsWith("@@") || line.startsWith("diff ") || line.startsWith("index ") || /^(---|\+\+\+|new file|deleted file|old mode|new mode)/.test(line)) return "hunk";
  return line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : "";
}

export function DiffFiles({ diff }: { diff: Diff }) {
  if (diff.files.length === 0) return <Empty title="No file differs" />;
  const last = (path: string) => Number(IDENTITY.includes(path));
  // The paths are relative to the directory that was compared.
  const below = diff.path.replace(/\/$/, "");
  const files = [...diff.files].sort((a, b) => last(a.path) - last(b.path));
  return (
    <div class="stack" style={{ gap: "8px" }}>
      <p class="muted">{diff.added} added, {diff.changed} changed, {diff.removed} removed</p>
      {files.slice(0, 300).map((file) => (
        <details class="file" key={file.path} open={diff.files.length <= 8 && !last(file.path)}>
          <summary>
            <Badge status={file.change} />
            <code class="grow wrap">{below}/{file.path}</code>
            {last(file.path) > 0 && <small>every sandbox has its own</small>}
            <small>{file.before ? bytes(file.before.size) : "–"} → {file.after ? bytes(file.after.size) : "–"}</small>
          </summary>
          {file.patch ? (
            <div class="diff" tabIndex={0} role="region" aria-label={`Changes of ${file.path}`}>
              {lines(file.patch).slice(0, 2000).map((line) => <div class={kind(line)}>{line}</div>)}
            </div>
          ) : (
            <p class="muted">{file.no_patch ?? "There is no text to compare"}</p>
          )}
        </details>
      ))}
      {diff.files.length > 300 && <p class="muted">{diff.files.length - 300} more files are not shown.</p>}
    </div>
  );
}
