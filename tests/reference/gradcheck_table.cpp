#include <tapeformer/tests/reference/check_below.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <sstream>

namespace tapeformer {
namespace {

struct Row {
  double relative = 0, absolute = 0;
  int orders = 1;  // 2 when the gradient of the gradient was checked too
};
using Table = std::map<std::string, Row>;

Table& checked_here() {
  static Table table;
  return table;
}

std::string line_of(const std::string& name, const Row& row, const char* orders) {
  char line[256];
  std::snprintf(line, sizeof line, "%-44s %12.2e %12.2e  %s\n", name.c_str(), row.relative, row.absolute,
                orders);
  return line;
}

void print(std::ostream& out, const Table& table) {
  char title[256];
  std::snprintf(title, sizeof title, "%-44s %12s %12s  %s\n", "gradient check, in double", "relative",
                "absolute", "orders");
  out << title;
  Row worst;
  for (const auto& [name, row] : table) {
    out << line_of(name, row, row.orders == 2 ? "1 2" : "1");
    worst.relative = std::max(worst.relative, row.relative);
    worst.absolute = std::max(worst.absolute, row.absolute);
  }
  out << line_of("worst of " + std::to_string(table.size()), worst, "");
}

/// The rows that print() wrote.
Table read(const std::string& file) {
  Table table;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    Row row;
    int order = 0;
    if (!(words >> name >> row.relative >> row.absolute)) continue;
    row.orders = 0;
    while (words >> order) row.orders = order;
    if (row.orders > 0) table[name] = row;
  }
  return table;
}

}  // namespace

void check_gradients(const std::string& name, const GradcheckReport& report) {
  INFO(name, "\n", report.text());
  CHECK(report.passed());
  Row row{report.worst_relative_error(), report.worst_absolute_error(), report.second_inputs.empty() ? 1 : 2};
  std::string key = name;
  std::replace(key.begin(), key.end(), ' ', '_');
  double margin = 0;
  const GradcheckOptions usual;
  report.for_each_part([&](const char*, const std::vector<GradcheckInput>& inputs) {
    for (const GradcheckInput& input : inputs)
      margin = std::max(
          margin, std::min(input.relative_error / usual.tolerance, input.absolute_error / usual.absolute));
  });
  note_margin(margin, 1, "gradcheck:" + key);
  Row& kept = checked_here()[key];
  kept = {std::max(kept.relative, row.relative), std::max(kept.absolute, row.absolute),
          std::max(kept.orders, row.orders)};
}

void report_gradients(std::ostream& out, const std::string& file) {
  if (checked_here().empty()) return;
  print(out, checked_here());

  const int lock = open((file + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock < 0) return;
  flock(lock, LOCK_EX);
  std::error_code none;
  Table all;
  // Lines written by an older build of the tests are dropped.
  if (std::filesystem::last_write_time(file, none) >
      std::filesystem::last_write_time("/proc/self/exe", none)) {
    all = read(file);
  }
  for (const auto& [name, row] : checked_here()) all[name] = row;
  std::ofstream merged(file, std::ios::trunc);
  print(merged, all);
  merged.close();
  close(lock);
}

}  // namespace tapeformer
