#include "benchmarks/allreduce/allreduce_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/statistics.hpp"
#include "engine/run/record_json.hpp"

namespace mayfly::bench {
namespace {

bool same_cell(const AllReduceRow& row, const AllReduceRound& round) {
  return row.ranks == round.ranks && row.bytes == round.bytes && row.contestant == round.contestant;
}

AllReduceRow row_of(const AllReduceRound& first, const std::vector<AllReduceRound>& rounds) {
  AllReduceRow row;
  row.ranks = first.ranks;
  row.bytes = first.bytes;
  row.contestant = first.contestant;
  row.is_peer = first.is_peer;
  row.min_seconds = first.min_seconds;
  std::vector<double> medians;
  for (const AllReduceRound& round : rounds) {
    if (same_cell(row, round)) {
      medians.push_back(round.median_seconds);
      row.min_seconds = std::min(row.min_seconds, round.min_seconds);
    }
  }
  row.rounds = static_cast<std::uint32_t>(medians.size());
  row.seconds = median(medians);
  row.low_seconds = percentile(medians, 0.1);
  row.high_seconds = percentile(medians, 0.9);
  return row;
}

void compare_with_peers(std::vector<AllReduceRow>& rows) {
  for (AllReduceRow& row : rows) {
    const AllReduceRow* best = nullptr;
    for (const AllReduceRow& other : rows) {
      if (other.is_peer && other.ranks == row.ranks && other.bytes == row.bytes &&
          (best == nullptr || other.seconds < best->seconds)) {
        best = &other;
      }
    }
    if (best != nullptr && best->seconds > 0) {
      row.best_peer = best->contestant;
      row.ratio_to_best_peer = row.seconds / best->seconds;
    }
  }
}

std::string milliseconds_text(double seconds) {
  return fmt::format("{:.4g}", 1e3 * seconds);
}

}  // namespace

double algorithm_bandwidth(const AllReduceRow& row) {
  return row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds / 1e9 : 0;
}

double bus_bandwidth(const AllReduceRow& row) {
  const double n = row.ranks;
  return algorithm_bandwidth(row) * 2 * (n - 1) / n;
}

std::vector<AllReduceRow> rows_of(const std::vector<AllReduceRound>& rounds) {
  std::vector<AllReduceRow> rows;
  for (const AllReduceRound& round : rounds) {
    const bool known = std::any_of(rows.begin(), rows.end(), [&round](const AllReduceRow& row) {
      return same_cell(row, round);
    });
    if (!known) {
      rows.push_back(row_of(round, rounds));
    }
  }
  compare_with_peers(rows);
  return rows;
}

std::string to_json(const AllReduceRound& round, const std::string& type) {
  return engine::json_text({{"kind", "round"},
                            {"ranks", round.ranks},
                            {"bytes", round.bytes},
                            {"type", type},
                            {"contestant", round.contestant},
                            {"peer", round.is_peer},
                            {"round", round.round},
                            {"iterations", round.iterations},
                            {"median_ms", engine::rounded(1e3 * round.median_seconds, 6)},
                            {"min_ms", engine::rounded(1e3 * round.min_seconds, 6)}});
}

std::string to_json(const AllReduceRow& row, const std::string& type) {
  const bool compared = !row.best_peer.empty();
  return engine::json_text(
      {{"kind", "row"},
       {"ranks", row.ranks},
       {"bytes", row.bytes},
       {"type", type},
       {"contestant", row.contestant},
       {"peer", row.is_peer},
       {"rounds", row.rounds},
       {"median_ms", engine::rounded(1e3 * row.seconds, 6)},
       {"p10_ms", engine::rounded(1e3 * row.low_seconds, 6)},
       {"p90_ms", engine::rounded(1e3 * row.high_seconds, 6)},
       {"min_ms", engine::rounded(1e3 * row.min_seconds, 6)},
       {"algorithm_gbps", engine::rounded(algorithm_bandwidth(row), 4)},
       {"bus_gbps", engine::rounded(bus_bandwidth(row), 4)},
       {"best_peer", compared ? engine::json::value(row.best_peer) : nullptr},
       {"ratio_to_best_peer",
        compared ? engine::json::value(engine::rounded(row.ratio_to_best_peer, 4)) : nullptr}});
}

std::string to_table(const std::vector<AllReduceRow>& rows) {
  constexpr const char* kRow = "{:>5} {:>6}  {:<15} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}\n";
  std::string text = fmt::format(fmt::runtime(kRow), "ranks", "size", "contestant", "ms", "p10",
                                 "p90", "min", "alg GB/s", "bus GB/s", "x best");
  const AllReduceRow* last = nullptr;
  for (const AllReduceRow& row : rows) {
    if (last != nullptr && (last->ranks != row.ranks || last->bytes != row.bytes)) {
      text += "\n";
    }
    last = &row;
    text += fmt::format(
        fmt::runtime(kRow), row.ranks, size_text(row.bytes), row.contestant,
        milliseconds_text(row.seconds), milliseconds_text(row.low_seconds),
        milliseconds_text(row.high_seconds), milliseconds_text(row.min_seconds),
        fmt::format("{:.3f}", algorithm_bandwidth(row)), fmt::format("{:.3f}", bus_bandwidth(row)),
        row.best_peer.empty() ? "-" : fmt::format("{:.3f}", row.ratio_to_best_peer));
  }
  return text;
}

std::string size_text(std::size_t bytes) {
  constexpr std::size_t kKilo = 1024;
  if (bytes > 0 && bytes % (kKilo * kKilo) == 0) {
    return std::to_string(bytes / (kKilo * kKilo)) + "M";
  }
  return bytes > 0 && bytes % kKilo == 0 ? std::to_string(bytes / kKilo) + "K"
                                         : std::to_string(bytes);
}

}  // namespace mayfly::bench
