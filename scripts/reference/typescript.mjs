/** Prints the reference of the TypeScript SDK: the exports of `src/index.ts`, with signatures and comments. */

import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const root = resolve(process.argv[2]);
const ts = createRequire(join(root, "package.json"))("typescript");

const entry = join(root, "src/index.ts");
const { config } = ts.readConfigFile(join(root, "tsconfig.json"), ts.sys.readFile);
const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
const program = ts.createProgram([entry], options);
const checker = program.getTypeChecker();

const OPENING = `# TypeScript

Everything that \`import { … } from "sandling"\` provides. [sdk.md](../sdk.md) is the guide.
`;

/** The text of a declaration's comment. */
function told(symbolOrNode) {
  const parts = symbolOrNode.getDocumentationComment
    ? symbolOrNode.getDocumentationComment(checker)
    : (ts.getJSDocCommentsAndTags(symbolOrNode)[0]?.comment ?? "");
  const text = typeof parts === "string" ? parts : ts.displayPartsToString(parts);
  return text.replace(/\s*\n\s*/g, " ").trim();
}

/** A declaration without its body. */
function signature(node) {
  const end = node.body ? node.body.getStart() : node.getEnd();
  const text = node.getSourceFile().text.slice(node.getStart(), end);
  return text
    .replace(/\/\*\*[\s\S]*?\*\/\s*/g, "")
    .replace(/\s+/g, " ")
    .replace(/\( /g, "(")
    .replace(/,? \)/g, ")")
    .replace(/[;,{ ]+$/, "")
    .replace(/\basync \*?/, "")
    .trim();
}

function isPublic(member) {
  if (!member.name || ts.isPrivateIdentifier(member.name) || ts.isComputedPropertyName(member.name)) return false;
  return !(ts.getCombinedModifierFlags(member) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected));
}

function describe(member) {
  const comment = told(checker.getSymbolAtLocation(member.name));
  return `- \`${signature(member)}\`${comment ? `: ${comment}` : ""}`;
}

function ofClass(node) {
  const members = node.members.filter((member) => !ts.isConstructorDeclaration(member) && isPublic(member));
  // Callers of an overloaded method see all declarations except the last.
  const overloaded = new Set(
    members.filter((member) => ts.isMethodDeclaration(member) && !member.body).map((member) => member.name.getText()),
  );
  return members.filter((member) => !(member.body && overloaded.has(member.name.getText()))).map(describe);
}

function ofConstant(declaration) {
  const value = declaration.initializer;
  if (value && ts.isObjectLiteralExpression(value)) {
    return value.properties.map((property) => {
      const type = checker.typeToString(checker.getTypeAtLocation(property), property, ts.TypeFormatFlags.NoTruncation);
      const comment = told(checker.getSymbolAtLocation(property.name));
      return `- \`${property.name.getText()}: ${type}\`${comment ? `: ${comment}` : ""}`;
    });
  }
  const type = checker.typeToString(checker.getTypeAtLocation(declaration));
  return [`\`${type}\``];
}

function body(node) {
  if (ts.isClassDeclaration(node)) return ofClass(node);
  if (ts.isInterfaceDeclaration(node)) return node.members.filter((member) => member.name).map(describe);
  if (ts.isVariableDeclaration(node)) return ofConstant(node);
  return [`\`${signature(node).replace(/^export /, "")}\``];
}

function heading(node, name) {
  const base = node.heritageClauses?.map((clause) => clause.getText()).join(" ");
  return base ? `### ${name}\n\n\`${base}\`` : `### ${name}`;
}

const kinds = [
  ["Classes", (node) => ts.isClassDeclaration(node)],
  ["Functions", (node) => ts.isFunctionDeclaration(node)],
  ["Constants", (node) => ts.isVariableDeclaration(node)],
  ["Types", (node) => ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)],
];
const module = checker.getSymbolAtLocation(program.getSourceFile(entry));
const exported = checker
  .getExportsOfModule(module)
  .map((symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol))
  .sort((one, other) => (one.name < other.name ? -1 : 1));

const parts = [OPENING];
for (const [title, fits] of kinds) {
  parts.push(`## ${title}\n`);
  for (const symbol of exported) {
    const node = symbol.declarations.find(fits);
    if (!node) continue;
    const comment = told(symbol);
    const paragraphs = [heading(node, symbol.name), comment, body(node).join("\n")];
    parts.push(`${paragraphs.filter(Boolean).join("\n\n")}\n`);
  }
}
process.stdout.write(parts.join("\n"));
