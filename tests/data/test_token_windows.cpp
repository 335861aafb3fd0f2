#include <doctest/doctest.h>
#include <tapeformer/data/token_windows.h>
#include <tapeformer/tests/data/written_tokens.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>
#include <tapeformer/tests/reference/sanitized.h>
#include <tapeformer/tests/reference/text.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

using namespace tapeformer;

namespace {

/// Token i is i: a window's first input is where it starts.
TokenFile counting_file(const TemporaryFolder& folder, Index size) {
  Ids ids(static_cast<std::size_t>(size));
  std::iota(ids.begin(), ids.end(), 0);
  return write_tokens(folder.file("tokens_" + std::to_string(size)), 1'000'000, ids);
}

/// The starts of a batch's windows; checks the rest of them.
Ids starts_of(const TokenBatch& batch, Index rows, Index length, Index size) {
  CHECK(batch.inputs.shape() == Shape{rows, length});
  CHECK(batch.targets.shape() == Shape{rows, length});
  const Ids inputs = batch.inputs.to_vector<std::int32_t>(),
            targets = batch.targets.to_vector<std::int32_t>();
  Ids starts;
  bool follow = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto place = static_cast<std::int32_t>(static_cast<Index>(i) % length);
    if (place == 0) starts.push_back(inputs[i]);
    follow = follow && inputs[i] == starts.back() + place && targets[i] == inputs[i] + 1;
    follow = follow && targets[i] < size;
  }
  CHECK(follow);
  return starts;
}

struct Reader {
  TokenFile file;
  Index length;
  WindowOrder order;
  std::uint64_t seed = test_seed(1);

  Ids starts(Index number, Index rows) const {
    return starts_of(TokenWindows(file, length, order, seed).batch(number, rows), rows, length, file.size());
  }
  /// The starts of all windows of an epoch, in order.
  Ids epoch(Index number) const {
    const TokenWindows windows(file, length, order, seed);
    Ids all;
    for (Index i = 0; i < windows.windows(); ++i) {
      const Tensor first = windows.batch(number * windows.windows() + i, 1).inputs;
      all.push_back(first.data<std::int32_t>()[0]);
    }
    return all;
  }
};

Ids sorted(Ids values) {
  std::sort(values.begin(), values.end());
  return values;
}

/// Chi-squared of counts that should be equal, over its degrees of freedom: about 1.
template <class Counts>
double unevenness(const Counts& counts, std::size_t kinds) {
  double sum = 0, squares = 0;
  for (const auto& [value, count] : counts) {
    sum += static_cast<double>(count);
    squares += static_cast<double>(count) * static_cast<double>(count);
  }
  const double expected = sum / static_cast<double>(kinds);
  return (squares / expected - sum) / static_cast<double>(kinds - 1);
}
double most_uneven(double freedom) { return most_chi_square(freedom) / freedom - 1; }  // above the mean of 1

}  // namespace

TEST_CASE_FIXTURE(InFolder, "random windows start anywhere where the last target is inside, equally often") {
  const Reader reader{counting_file(folder, 40), 7, WindowOrder::random};
  std::map<std::int32_t, Index> counts;
  for (Index number = 0; number < 300; ++number) {
    for (const std::int32_t start : reader.starts(number, 11)) ++counts[start];
  }
  CHECK(counts.size() == 40 - 7);
  CHECK(counts.begin()->first == 0);
  CHECK(counts.rbegin()->first == 40 - 7 - 1);
  CHECK_BELOW(unevenness(counts, 33) - 1, most_uneven(32));
}

TEST_CASE_FIXTURE(InFolder, "the batches of random windows are a function of seed and number") {
  const TokenFile file = counting_file(folder, 100'000);
  const Reader reader{file, 8, WindowOrder::random, 5}, again{file, 8, WindowOrder::random, 5};
  const Reader other{file, 8, WindowOrder::random, 6};
  const Ids third = reader.starts(3, 4);
  CHECK(third == Ids{99918, 31795, 13850, 80761});
  CHECK(again.starts(2, 4) != third);
  CHECK(again.starts(3, 4) == third);
  CHECK(other.starts(3, 4) != third);
  // No two windows of many are the same, within a batch, between batches, or between seeds.
  std::set<std::int32_t> seen;
  for (const Reader& one : {reader, other}) {
    for (Index number = 0; number < 4; ++number) {
      for (const std::int32_t start : one.starts(number, 4)) seen.insert(start);
    }
  }
  CHECK(seen.size() == 32);
}

TEST_CASE_FIXTURE(InFolder, "an epoch has every window once, side by side, in shuffled order") {
  for (const Index size : {100, 101, 102, 199, 1000, 4097}) {
    for (const Index length : {1, 3, 10, 49, 50}) {
      CAPTURE(size);
      CAPTURE(length);
      const Reader reader{counting_file(folder, size), length, WindowOrder::sequential};
      const Index windows = TokenWindows(reader.file, length, reader.order, 1).windows();
      CHECK(windows == std::max<Index>(1, (size - length) / length));
      std::set<Ids> orders;
      for (const Index epoch : {0, 1, 2}) {
        const Ids starts = reader.epoch(epoch), in_order = sorted(starts);
        CHECK(in_order.front() < size - windows * length);
        CHECK(in_order.back() + length < size);
        for (std::size_t i = 1; i < in_order.size(); ++i) REQUIRE(in_order[i] == in_order[i - 1] + length);
        if (windows > 20) {
          CHECK(starts != in_order);
          orders.insert(starts);
        }
      }
      if (windows > 20) CHECK(orders.size() == 3);
    }
  }
}

TEST_CASE("a sequential batch continues the one before, from one epoch into the next") {
  const TemporaryFolder folder;
  const Reader reader{counting_file(folder, 45), 4, WindowOrder::sequential};
  Ids epochs = reader.epoch(0), batches;
  for (const Index epoch : {1, 2}) {
    for (const std::int32_t start : reader.epoch(epoch)) epochs.push_back(start);
  }
  REQUIRE(epochs.size() == 30);
  for (const Index number : {0, 1, 2, 3, 4, 5}) {
    for (const std::int32_t start : reader.starts(number, 5)) batches.push_back(start);
  }
  CHECK(batches == epochs);
  CHECK(reader.starts(2, 5) == Ids(epochs.begin() + 10, epochs.begin() + 15));
  const Reader other{reader.file, 4, WindowOrder::sequential, 2};
  CHECK(other.epoch(0) != reader.epoch(0));
}

TEST_CASE("every start is as likely as any other, and so is every place of a window in its epoch") {
  const TemporaryFolder folder;
  for (const Index windows : {1, 2, 3, 5, 16, 17}) {
    CAPTURE(windows);
    const Reader reader{counting_file(folder, 6 * (windows + 1)), 6, WindowOrder::sequential};
    std::map<std::int32_t, Index> offsets;
    std::map<std::pair<std::size_t, std::int32_t>, Index> places;
    for (Index epoch = 0; epoch < fewer_if_sanitized(1200); ++epoch) {
      const Ids starts = reader.epoch(epoch);
      REQUIRE(static_cast<Index>(starts.size()) == windows);
      ++offsets[starts[0] % 6];
      for (std::size_t i = 0; i < starts.size(); ++i) ++places[{i, starts[i] / 6}];
    }
    CHECK(offsets.size() == 6);
    CHECK_BELOW(unevenness(offsets, 6) - 1, most_uneven(5));
    if (windows > 1) {
      const auto all = static_cast<std::size_t>(windows * windows);
      CHECK(places.size() == all);
      // A permutation has (n - 1)^2 degrees of freedom, and its counts vary n / (n - 1) times as much.
      const double freedom = static_cast<double>((windows - 1) * (windows - 1)),
                   wider = static_cast<double>(windows) / static_cast<double>(windows - 1);
      CHECK_BELOW(unevenness(places, all) * static_cast<double>(all - 1) / freedom - wider,
                  wider * most_uneven(freedom));
    }
  }
}

TEST_CASE_FIXTURE(InFolder, "a file with one token more than a window has one window") {
  for (const WindowOrder order : {WindowOrder::random, WindowOrder::sequential}) {
    const Reader reader{counting_file(folder, 9), 8, order};
    CHECK(reader.starts(0, 3) == Ids{0, 0, 0});
    CHECK(reader.starts(5, 2) == Ids{0, 0});
    CHECK(TokenWindows(reader.file, 8, order, 1).windows() == 1);
  }
}

TEST_CASE_FIXTURE(InFolder, "files that are too short are refused") {
  const TokenFile file = counting_file(folder, 8);
  const auto message = [&](const std::string& length) {
    return file.path() + ": holds 8 tokens; a window of " + length +
           " and the token after it do not fit; try a longer text or a shorter context";
  };
  CHECK_THROWS_WITH_AS(TokenWindows(file, 8, WindowOrder::random, 1), message("8").c_str(), DataError);
  CHECK_THROWS_WITH_AS(TokenWindows(file, 0, WindowOrder::random, 1), message("0").c_str(), DataError);
  const auto ignore = [](Index, const ReadRows&) {};
  CHECK_THROWS_WITH_AS(for_each_window(counting_file(folder, 1), 4, 2, ignore),
                       (folder.file("tokens_1") + ": holds 1 token: no token has one before it").c_str(),
                       DataError);
  CHECK_THROWS_AS(for_each_window(counting_file(folder, 0), 4, 2, ignore), DataError);
  CHECK_THROWS_AS(for_each_window(counting_file(folder, 9), 4, 0, ignore), DataError);
}

TEST_CASE_FIXTURE(InFolder, "for the exact mean every token but the first is a target once, in order") {
  for (const Index size : {2, 3, 24, 25, 26, 27, 30, 31, 48, 49, 50, 73}) {
    CAPTURE(size);
    const TokenFile file = counting_file(folder, size);
    Ids targets;
    std::vector<Shape> shapes;
    for_each_window(file, 6, 4, [&](Index rows, const ReadRows& read) {
      const TokenBatch batch = read({0, rows});
      shapes.push_back(batch.inputs.shape());
      const Ids starts = starts_of(batch, rows, batch.inputs.size(1), size);
      for (Index row = 0; row < rows; ++row)
        CHECK(read({row, row + 1}).inputs.at(0) == starts[static_cast<std::size_t>(row)]);
      for (const std::int32_t id : batch.targets.to_vector<std::int32_t>()) targets.push_back(id);
    });
    Ids expected(static_cast<std::size_t>(size - 1));
    std::iota(expected.begin(), expected.end(), 1);
    CHECK(targets == expected);
    for (Index i = 0; i < (size - 1) / 24; ++i) CHECK(shapes[static_cast<std::size_t>(i)] == Shape{4, 6});
    CHECK(static_cast<Index>(shapes.size()) <= (size - 1) / 24 + 2);
  }
}
