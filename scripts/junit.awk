# Turns one JUnit file of ctest into lines `passed LABEL: NAME`, `failed LABEL: NAME` and, with tabs
# between, `skipped LABEL<tab>NAME<tab>REASON`. LABEL is the variable `prefix`. The reason is what
# a GoogleTest gave to GTEST_SKIP(), or what follows SKIPPED: in other output. The last lines that
# a failed test wrote are appended to the file that the variable `failures` names.

BEGIN { shown = 40 }

function plain(text) {
  gsub(/&lt;/, "<", text)
  gsub(/&gt;/, ">", text)
  gsub(/&quot;/, "\"", text)
  gsub(/&apos;/, "'", text)
  gsub(/&amp;/, "\\&", text)
  return text
}

function attribute(line, name,   start) {
  if (!match(line, " " name "=\"[^\"]*\"")) return ""
  start = RSTART + length(name) + 3
  return plain(substr(line, start, RLENGTH - length(name) - 4))
}

# Removes the bytes of a parameter that GoogleTest cannot print.
function short_name(name) {
  sub(/ *# GetParam\(\) = .*/, "", name)
  return name
}

function print_failure(   line) {
  print "== failed " prefix ": " name >>failures
  for (line = (lines > shown ? lines - shown : 0); line < lines; line++) {
    print "   " plain(output[line % shown]) >>failures
  }
}

/<testcase / {
  name = short_name(attribute($0, "name"))
  lines = inside = 0
  status = attribute($0, "status")
  message = reason = ""
  after_skip = 0
}
/<skipped / { message = attribute($0, "message") }
/(SKIPPED|skipped):/ && reason == "" { reason = $0; sub(/.*(SKIPPED|skipped): */, "", reason) }
after_skip { if (reason == "") reason = $0; after_skip = 0 }
/: Skipped$/ { after_skip = 1 }
/<system-out>/ { inside = 1 }
inside {
  text = $0
  sub(/.*<system-out>/, "", text)
  inside = !sub(/<\/system-out>.*/, "", text)
  if (text != "") output[lines++ % shown] = text
}
/<\/testcase>/ {
  if (status == "run") {
    print "passed " prefix ": " name
  } else if (status == "disabled" || message ~ /^SKIP_/) {
    sub(/<\/system-out>.*/, "", reason)
    reason = reason == "" ? "no reason given" : plain(reason)
    print "skipped " prefix "\t" name "\t" reason
  } else {
    print "failed " prefix ": " name
    print_failure()
  }
}
