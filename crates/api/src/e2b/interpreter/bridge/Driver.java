import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import jdk.jshell.DeclarationSnippet;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.Snippet;
import jdk.jshell.Snippet.SubKind;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis.CompletionInfo;
import jdk.jshell.execution.LocalExecutionControlProvider;

/** Runs cells of Java, one after another, in this process; bridge.py says how. An empty line interrupts a cell. */
public class Driver {
    private static final List<String> IMPORTS = List.of("java.io", "java.math", "java.net", "java.nio.file",
        "java.util", "java.util.concurrent", "java.util.function", "java.util.regex", "java.util.stream");

    private static final Set<SubKind> EXPRESSIONS =
        Set.of(SubKind.TEMP_VAR_EXPRESSION_SUBKIND, SubKind.VAR_VALUE_SUBKIND, SubKind.OTHER_EXPRESSION_SUBKIND);

    private final JShell shell =
        JShell.builder().executionEngine(new LocalExecutionControlProvider(), Map.of()).build();
    private volatile boolean interrupted;

    public static void main(String[] arguments) throws Exception {
        // E2B's clients read the variables of a sandbox as properties, because those of a process cannot be changed.
        System.getenv().forEach(System.getProperties()::putIfAbsent);
        Driver driver = new Driver();
        IMPORTS.forEach(name -> driver.shell.eval("import " + name + ".*;"));
        ExecutorService worker = Executors.newSingleThreadExecutor();
        Future<?> running = null;
        try (BufferedReader cells = new BufferedReader(new InputStreamReader(new FileInputStream(arguments[0])));
                OutputStream ends = new FileOutputStream(arguments[1])) {
            String line;
            while ((line = cells.readLine()) != null) {
                if (line.isEmpty()) {
                    driver.interrupt(running);
                } else {
                    Path cell = Path.of(line);
                    running = worker.submit(() -> driver.run(cell, ends));
                }
            }
        }
        System.exit(0);
    }

    /** Stops the cell. Repeats that, because it has no effect while a snippet is compiled. */
    private void interrupt(Future<?> running) throws Exception {
        while (running != null && !running.isDone()) {
            interrupted = true;
            shell.stop();
            try {
                running.get(100, TimeUnit.MILLISECONDS);
            } catch (TimeoutException stillRunning) {
                continue;
            }
        }
    }

    private Void run(Path cell, OutputStream ends) throws IOException {
        interrupted = false;
        Map<String, String> before = setProperties(variables(cell));
        try {
            String value = evaluate(Files.readString(cell.resolve("code")));
            if (value != null) {
                Files.writeString(cell.resolve("value-1.txt"), value);
            }
        } catch (Throwable thrown) {
            CellFailure failure = thrown instanceof CellFailure ? (CellFailure) thrown : CellFailure.of(thrown);
            Files.writeString(cell.resolve("error-value"), failure.value);
            Files.writeString(cell.resolve("error-trace"), failure.trace);
            Files.writeString(cell.resolve("error-name"), failure.name);
        } finally {
            setProperties(before);
            System.out.flush();
            System.err.flush();
            ends.write('\n');
        }
        return null;
    }

    /** Sets properties, where null removes one, and returns what they were before. */
    private static Map<String, String> setProperties(Map<String, String> properties) {
        Map<String, String> before = new HashMap<>();
        properties.forEach((name, value) -> {
            before.put(name, value == null ? System.clearProperty(name) : System.setProperty(name, value));
        });
        return before;
    }

    private static Map<String, String> variables(Path cell) throws IOException {
        Map<String, String> variables = new HashMap<>();
        for (String line : Files.readAllLines(cell.resolve("environment"))) {
            String[] parts = line.split("=", 2);
            variables.put(decode(parts[0]), decode(parts[1]));
        }
        return variables;
    }

    private static String decode(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }

    /** Evaluates the snippets of a cell and returns the value of the last one, if it has one to show. */
    private String evaluate(String code) throws CellFailure {
        List<DeclarationSnippet> declared = new ArrayList<>();
        String value = null;
        while (!code.isBlank()) {
            CompletionInfo next = shell.sourceCodeAnalysis().analyzeCompletion(code);
            // The compiler says what an incomplete snippet lacks.
            List<SnippetEvent> events = shell.eval(next.completeness().isComplete() ? next.source() : code);
            for (SnippetEvent event : events) {
                check(event);
                if (event.snippet() instanceof DeclarationSnippet) {
                    declared.add((DeclarationSnippet) event.snippet());
                }
                value = valueOf(event);
            }
            code = next.completeness().isComplete() ? next.remaining() : "";
        }
        for (DeclarationSnippet snippet : declared) {
            if (shell.status(snippet) == Snippet.Status.RECOVERABLE_NOT_DEFINED) {
                String names = shell.unresolvedDependencies(snippet).collect(Collectors.joining(", "));
                String source = "    " + snippet.source().strip();
                throw new CellFailure("CompilationException", "not declared: " + names, source);
            }
        }
        return value;
    }

    /** The value of an expression; null if there is none to show. */
    private static String valueOf(SnippetEvent event) {
        String value = event.value();
        if (value == null || value.equals("null") || !EXPRESSIONS.contains(event.snippet().subKind())) {
            return null;
        }
        try {
            // Strings and characters come quoted, as in source code. The server removes the quotes.
            return value.startsWith("\"") || value.startsWith("'") ? value.translateEscapes() : value;
        } catch (IllegalArgumentException notEscaped) {
            return value;
        }
    }

    /** Throws the failure of a snippet, if it failed. */
    private void check(SnippetEvent event) throws CellFailure {
        if (interrupted) {
            throw new CellFailure("KeyboardInterrupt", "", "");
        }
        if (event.status() == Snippet.Status.REJECTED) {
            String source = event.snippet().source();
            List<Diag> problems = shell.diagnostics(event.snippet()).filter(Diag::isError).collect(Collectors.toList());
            String value = problems.stream().map(problem -> problem.getMessage(null)).collect(Collectors.joining("\n"));
            String trace = problems.stream().map(problem -> mark(source, problem)).collect(Collectors.joining("\n"));
            throw new CellFailure("CompilationException", value, trace);
        }
        if (event.exception() != null) {
            throw CellFailure.of(event.exception());
        }
    }

    /** The line of the problem, with a mark below its first character. */
    private static String mark(String source, Diag problem) {
        int at = Math.min((int) problem.getPosition(), source.length());
        int begin = source.lastIndexOf('\n', at - 1) + 1;
        int end = source.indexOf('\n', at);
        String line = source.substring(begin, end < 0 ? source.length() : end);
        return "    " + line + "\n    " + " ".repeat(at - begin) + "^";
    }

    private static class CellFailure extends Exception {
        final String name;
        final String value;
        final String trace;

        CellFailure(String name, String value, String trace) {
            this.name = name;
            this.value = value;
            this.trace = trace;
        }

        static CellFailure of(Throwable thrown) {
            StringBuilder trace = new StringBuilder();
            for (Throwable each = thrown; each != null; each = each.getCause()) {
                if (each != thrown) {
                    trace.append("Caused by: " + nameOf(each) + ": " + each.getMessage() + "\n");
                }
                for (StackTraceElement frame : each.getStackTrace()) {
                    trace.append("    at " + frame + "\n");
                }
            }
            String name = nameOf(thrown);
            String value = thrown.getMessage() == null ? "" : thrown.getMessage();
            return new CellFailure(name.replaceFirst(".*[.$]", ""), value, trace.toString());
        }

        private static String nameOf(Throwable thrown) {
            boolean ofSnippet = thrown instanceof EvalException;
            return ofSnippet ? ((EvalException) thrown).getExceptionClassName() : thrown.getClass().getName();
        }
    }
}
