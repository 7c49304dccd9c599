import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { python } from "@codemirror/lang-python";
import { HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { dockerFile } from "@codemirror/legacy-modes/mode/dockerfile";
import { shell } from "@codemirror/legacy-modes/mode/shell";
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { yaml } from "@codemirror/legacy-modes/mode/yaml";
import { Prec } from "@codemirror/state";
import { keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { EditorView, basicSetup } from "codemirror";
import { useEffect, useRef } from "preact/hooks";

const languages: Record<string, () => unknown> = {
  py: python,
  python,
  js: javascript,
  mjs: javascript,
  node: javascript,
  ts: () => javascript({ typescript: true }),
  tsx: () => javascript({ typescript: true, jsx: true }),
  json,
  sh: () => StreamLanguage.define(shell),
  bash: () => StreamLanguage.define(shell),
  yaml: () => StreamLanguage.define(yaml),
  yml: () => StreamLanguage.define(yaml),
  toml: () => StreamLanguage.define(toml),
  dockerfile: () => StreamLanguage.define(dockerFile),
};

// The colours are variables, so the editor follows the theme.
const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--code-string)" },
  { tag: [tags.comment, tags.meta], color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--code-number)" },
  { tag: [tags.function(tags.variableName), tags.definition(tags.variableName), tags.propertyName], color: "var(--code-name)" },
]);

interface EditorProps {
  /** The text at the beginning. Later the editor owns its text; another `key` makes another editor. */
  value: string;
  /** A language, or the end of a file's name. */
  language: string;
  label: string;
  change: (value: string) => void;
  /** Runs on Ctrl-Enter. */
  run?: () => void;
  /** Runs on Ctrl-S. */
  save?: () => void;
}

export function Editor({ value, language, label, change, run, save }: EditorProps) {
  const box = useRef<HTMLDivElement>(null);
  const actions = useRef({ change, run, save });
  actions.current = { change, run, save };
  useEffect(() => {
    const act = (name: "run" | "save") => () => {
      actions.current[name]?.();
      return Boolean(actions.current[name]);
    };
    const found = languages[language.toLowerCase()];
    const editor = new EditorView({
      doc: value,
      parent: box.current!,
      extensions: [
        Prec.highest(keymap.of([{ key: "Mod-Enter", run: act("run") }, { key: "Mod-s", run: act("save") }])),
        basicSetup,
        syntaxHighlighting(colours),
        ...(found ? [found() as never] : []),
        EditorView.contentAttributes.of({ "aria-label": label }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) actions.current.change(update.state.doc.toString());
        }),
      ],
    });
    return () => editor.destroy();
  }, [language]);
  return <div class="editor" ref={box} />;
}
