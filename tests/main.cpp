#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <tapeformer/tests/reference/gradcheck_table.h>

#include <iostream>

int main(int count, char** arguments) {
  doctest::Context context(count, arguments);
  const int result = context.run();
  if (!context.shouldExit())
    tapeformer::report_gradients(std::cout, TAPEFORMER_BINARY_DIR "/gradcheck_table.txt");
  return result;
}
