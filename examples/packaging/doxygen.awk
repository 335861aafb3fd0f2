# What Doxygen reads in place of a header: comments that by our habits speak of more than the next line are repeated, and
# what every class of a kind has is described here once.
function describe(text) { if (doc == "") $0 = "/** " text " */ " $0 }

# What options say of a field, in the header or in its source, is its comment, unless it has another.
function read_helps(file,   line, call, quoted) {
  while ((getline line < file) > 0) {
    if (line ~ /^ +field\("/) call = ""
    call = call line
    if (line !~ /;$/ || call !~ /^ +field\("[a-z0-9_]+",.*[^.]"/) continue
    split(call, quoted, /"/)
    sub(/^.*", [^"]*[,(][^"]*"/, "", call)  # the last text that begins after a comma
    sub(/"[^"]*$/, "", call)
    gsub(/" +"/, "", call)
    if (call ~ / /) help[quoted[2]] = call
    call = ""
  }
}
BEGIN {
  read_helps(ARGV[1])
  source = ARGV[1]
  if (sub(/\.h$/, ".cpp", source)) read_helps(source)
}

# Copies and moves that are defaulted or deleted, names taken over from a base, and specialisations are left out.
/= (default|delete);/ || /^ +using [A-Za-z]+::[A-Za-z]+;/ || /^ +using Config = [A-Za-z]+;$/ { print ""; next }
/^template <>$/ { specialisation = 1 }
specialisation { if (/^}|}};$/) specialisation = 0; print ""; next }

# Comments. "Math:    ..." begins a paragraph with that heading, and the lines below it stay lines.
/^ *\/\/\/ / {
  if (match($0, /^ *\/\/\/ [A-Z][a-z]+: +/)) {
    heading = $2
    sub(/:$/, "", heading)
    $0 = "/// @headed{" heading "} " substr($0, RLENGTH + 1)
  }
  sub(/\/\/\/   +/, "/// <br>")
  doc = in_doc ? doc "\n" $0 : $0
  in_doc = 1
  print
  next
}
{ if (!in_doc && !/^[A-Za-z]/) doc = ""; first = in_doc; in_doc = 0 }

# A comment speaks of all functions below it, up to an empty line.
/^$/ { doc = "" }
/^[A-Za-z].*\) ?[;{]/ && !/^(namespace|struct|class|enum|template)/ && doc != "" && !first { print doc }

# What every layer, optimizer and configuration has.
/^struct [A-Za-z]+Config( : [A-Za-z]+)? \{/ {
  name = $2
  sub(/Config$/, "", name)
  describe("The configuration of " name ".")
}
/^  (explicit )?[A-Z][A-Za-z]+\(.*Config& config[^.]*\)?/ && /^  (explicit )?[A-Z]/ {
  describe(/Parameter>/ ? "Optimizes these parameters." : "Makes it as configured, with initial parameters from `random` if there are any.")
}
/^  Tensor operator\(\)\(/ { describe("Computes y, as said of the class.") }
/^  void describe\(const FieldVisitor& field\)/ { describe("Names each field to `field` once, with the member and what options say of it.") }
# Every piece of attention: see piece.h.
/^  void describe\(const FieldVisitor& [^,]*, const FieldVisitor& / { describe("Describes the fields: to the first visitor those that models have too, to the second those that a model decides.") }
/^  static void complete\(AttentionConfig& / { describe("The piece's part of AttentionConfig::resolved(). Throws: Error if the configuration does not fit.") }
/^  static MadePiece make\(/ { describe("The piece of a layer of this resolved configuration, or null if it asks for none.") }
/^  static void add_cost\(const AttentionConfig& / { describe("Adds the piece's part of the layer's cost.") }
/^  static PieceCases cases\(\);/ { describe("Configurations to test the piece by.") }
/^const char\* name_of\(/ { describe("The name in files and options.") }

/^  [A-Za-z].* [a-z0-9_]+( = [^;]*)?;$/ && doc == "" {
  name = $0
  sub(/( = .*)?;$/, "", name)
  sub(/.* /, "", name)
  if (name in help) $0 = $0 "  ///< " help[name]
}

# Several members in one line share its comment.
/^(constexpr| ) *[A-Za-z_:<>0-9]+ [A-Za-z_0-9]+( = [^,;(){}]+)?(, [A-Za-z_0-9]+( = [^,;(){}]+)?)+;/ {
  trailing = ""
  if (match($0, / *\/\/\/<.*/)) trailing = substr($0, RSTART)
  sub(/;.*/, "")
  type = $1 == "constexpr" ? $1 " " $2 : $1
  count = split(substr($0, index($0, type) + length(type) + 1), members, /, /)
  for (i = 1; i <= count; ++i) {
    if (i > 1 && first) print doc
    print type " " members[i] ";" trailing
  }
  next
}
{ print }
