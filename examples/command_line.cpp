#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/command_line.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace tapeformer {
namespace {

/// How many characters have to be put in, left out or changed.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

/// What is wrong with the arguments that nothing took.
std::string unknown_text(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining(true);
  const auto option =
      std::find_if(left.begin(), left.end(), [](const std::string& text) { return text[0] == '-'; });
  if (option == left.end()) return "unexpected argument " + left.front();
  const std::string unknown = option->substr(0, option->find('='));
  std::string nearest;
  std::size_t least = unknown.size() / 3 + 1;
  for (const CLI::App* command : app.get_subcommands()) {
    for (const CLI::Option* known : command->get_options()) {
      const std::string name = known->get_name();
      if (distance(unknown, name) >= least) continue;
      least = distance(unknown, name);
      nearest = name;
    }
  }
  return "unknown option " + unknown + (nearest.empty() ? "; try --help" : "; is " + nearest + " meant?");
}

}  // namespace

bool read_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_unknown = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                            (app.get_subcommands().empty() && app.remaining_size() > 0);
    if (error.get_exit_code() != 0) throw Error(is_unknown ? unknown_text(app) : error.what());
    app.exit(error);
    return false;
  }
  return true;
}

}  // namespace tapeformer
