# Turns one JUnit file of ctest into lines `passed NAME`, `failed NAME` and `skipped NAME:
# REASON`. The reason is what a GoogleTest gave to GTEST_SKIP(), or what follows SKIPPED: in other
# output.

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

/<testcase / {
  name = attribute($0, "name")
  status = attribute($0, "status")
  message = reason = ""
  after_skip = 0
}
/<skipped / { message = attribute($0, "message") }
/(SKIPPED|skipped):/ && reason == "" { reason = $0; sub(/.*(SKIPPED|skipped): */, "", reason) }
after_skip { if (reason == "") reason = $0; after_skip = 0 }
/: Skipped$/ { after_skip = 1 }
/<\/testcase>/ {
  if (status == "run") {
    print "passed " prefix ": " name
  } else if (status == "disabled" || message ~ /^SKIP_/) {
    sub(/<\/system-out>.*/, "", reason)
    print "skipped " prefix ": " name ": " (reason == "" ? "no reason given" : plain(reason))
  } else {
    print "failed " prefix ": " name
  }
}
