// Rich results of cells. They come from the guest, so this page never interprets them: HTML goes into a frame without
// scripts and without an origin, and pictures into `img`, where an SVG cannot run anything.

export type Rich = Record<string, string>;

const PICTURES = ["image/png", "image/jpeg", "image/svg+xml", "image/gif"];

function source(kind: string, data: string): string {
  if (kind === "image/svg+xml") return `data:image/svg+xml;utf8,${encodeURIComponent(data)}`;
  return `data:${kind};base64,${data.replaceAll(/\s/g, "")}`;
}

const FRAME_STYLE = "<style>body{font:13px system-ui,sans-serif;margin:8px;color:#17202b}table{border-collapse:collapse}th,td{border:1px solid #dfe3e9;padding:3px 8px;text-align:right}th{background:#f0f2f5}</style>";

export function Result({ rich }: { rich: Rich }) {
  const picture = PICTURES.find((kind) => rich[kind]);
  if (picture) return <img src={source(picture, rich[picture])} alt={rich["text/plain"] ?? "A picture that the cell made"} />;
  if (rich["text/html"]) return <iframe sandbox="" title="HTML result of the cell" srcdoc={FRAME_STYLE + rich["text/html"]} />;
  const text = rich["text/plain"] ?? rich["text/markdown"] ?? rich["application/json"] ?? JSON.stringify(rich, null, 2);
  return <pre tabIndex={0} aria-label="Result">{typeof text === "string" ? text : JSON.stringify(text, null, 2)}</pre>;
}
