# Runs cells of R, one after another; bridge.py says how. It uses no packages but those that are part of R.
local({
  paths <- commandArgs(trailingOnly = TRUE)
  directory <- NULL
  depth <- 0
  plots <- integer()

  # The device that R opens when a cell draws and no other device is open.
  open_plot <- function(...) {
    grDevices::png(file.path(directory, "plot-%d.png"), width = 840, height = 840, res = 120, type = "cairo")
    plots <<- c(plots, grDevices::dev.cur())
  }
  # Warnings are printed at once: R keeps them until its top level is reached, which is never.
  options(device = open_plot, warn = 1, keep.source = TRUE)

  # Opened for each line, because cells may close all connections.
  next_cell <- function() {
    cells <- fifo(paths[1], "rb", blocking = TRUE)
    on.exit(close(cells))
    readLines(cells, 1)
  }
  report_end <- function() {
    ends <- fifo(paths[2], "wb", blocking = TRUE)
    on.exit(close(ends))
    writeBin(charToRaw("\n"), ends)
  }
  put <- function(name, text) writeLines(enc2utf8(text), file.path(directory, name), useBytes = TRUE)

  # Sets variables, where NA removes one, and returns what they were before.
  set_variables <- function(variables) {
    # Without names, `Sys.getenv` returns all variables.
    if (length(variables) == 0) return(variables)
    before <- Sys.getenv(names(variables), unset = NA, names = TRUE)
    for (name in names(variables)) {
      if (is.na(variables[[name]])) Sys.unsetenv(name) else do.call(Sys.setenv, as.list(variables[name]))
    }
    before
  }
  cell_variables <- function() {
    lines <- strsplit(readLines(file.path(directory, "environment")), "=", fixed = TRUE)
    decode <- function(text) utils::URLdecode(text)
    values <- vapply(lines, function(line) if (length(line) > 1) decode(line[2]) else "", "")
    structure(values, names = vapply(lines, function(line) decode(line[1]), ""))
  }

  show_value <- function(value, number) {
    text <- utils::capture.output(if (isS4(value)) methods::show(value) else print(value))
    # A value that only draws has no text.
    if (length(text) > 0) put(sprintf("value-%d.txt", number), text)
  }
  evaluate <- function() {
    # `withVisible` and the two calls of `eval` come before those of the cell.
    depth <<- sys.nframe() + 3
    code <- parse(text = readLines(file.path(directory, "code"), encoding = "UTF-8", warn = FALSE), encoding = "UTF-8")
    for (number in seq_along(code)) {
      result <- withVisible(eval(code[[number]], globalenv()))
      if (result$visible) show_value(result$value, number)
    }
  }

  put_error <- function(name, value, trace = character()) {
    put("error-value", value)
    put("error-trace", trace)
    put("error-name", name)
  }
  # The calls of the cell at an error, without those of this file before them and those of its handler after them.
  trace_of <- function(calls) {
    calls <- utils::head(utils::tail(calls, -depth), -2)
    lines <- vapply(calls, function(call) deparse(call, nlines = 1)[1], "")
    if (length(lines) > 0) c("Traceback:", paste0(seq_along(lines), ". ", lines)) else character()
  }
  run_cell <- function() {
    trace <- character()
    tryCatch(
      withCallingHandlers(allowInterrupts(evaluate()), error = function(problem) trace <<- trace_of(sys.calls())),
      error = function(problem) put_error("ERROR", conditionMessage(problem), trace),
      interrupt = function(problem) put_error("KeyboardInterrupt", "")
    )
  }

  suspendInterrupts(repeat {
    directory <- next_cell()
    if (length(directory) == 0) break
    before <- set_variables(cell_variables())
    run_cell()
    set_variables(before)
    for (plot in intersect(plots, grDevices::dev.list())) grDevices::dev.off(plot)
    plots <- integer()
    # An interrupt that came too late must not interrupt the next cell.
    tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(late) NULL)
    flush(stdout())
    report_end()
  })
})
