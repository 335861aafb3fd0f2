# Writes OUTPUT, a C++ source with the text of embedded_corpus(). LIST names its files, a line each, below SOURCE.
# Usage: cmake -D SOURCE=FOLDER -D LIST=FILE -D OUTPUT=FILE -P embed_corpus.cmake
cmake_minimum_required(VERSION 3.25)

file(STRINGS "${LIST}" names ENCODING UTF-8)
set(literals "")
foreach(name IN LISTS names)
  file(READ "${SOURCE}/${name}" text)
  if(NOT text MATCHES "\n$")
    string(APPEND text "\n")
  endif()
  # A raw string literal ends at its delimiter. Made from the text, it does not occur there.
  string(SHA1 delimiter "${text}")
  string(SUBSTRING "${delimiter}" 0 16 delimiter)
  string(APPEND literals "R\"${delimiter}(=== ${name} ===\n${text})${delimiter}\"\n")
endforeach()
file(WRITE "${OUTPUT}.new" "#include <tapeformer/examples/shared/embedded_corpus.h>

#pragma GCC diagnostic ignored \"-Woverlength-strings\"  // compilers take far more than the standard asks of them

std::string_view tapeformer::embedded_corpus() {
  static constexpr char text[] =
${literals};
  return {text, sizeof text - 1};
}
")
file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)
