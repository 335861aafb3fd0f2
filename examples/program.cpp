#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/program.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <new>

namespace tapeformer {
namespace {

volatile std::sig_atomic_t interrupt_seen = 0;

void on_interrupt(int signal) {
  interrupt_seen = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

int run_program(const char* name, const std::function<int()>& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%s: out of memory; try a smaller batch or model\n", name);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
  }
  return kExitBadInput;
}

void remember_interrupts() {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
}

bool interrupted() { return interrupt_seen != 0; }

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) throw DataError(path, 0, "cannot be read");
  return text;
}

}  // namespace tapeformer
