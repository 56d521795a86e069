# Reads lines `skipped LABEL<tab>NAME<tab>REASON` and prints one line for each label and reason: the
# number of tests that were skipped, and the name of the first one.

BEGIN { FS = "\t" }
/^skipped / {
  key = $1 "\t" $3
  if (!(key in count)) {
    order[++groups] = key
    first[key] = $2
  }
  count[key]++
}
END {
  for (i = 1; i <= groups; i++) {
    split(order[i], part, "\t")
    others = count[order[i]] - 1
    also = others == 0 ? "" : " and " others " more"
    print part[1] ": " first[order[i]] also ": " part[2]
  }
}
