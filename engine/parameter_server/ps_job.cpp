#include "engine/parameter_server/ps_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/check.hpp"
#include "nn/optimizer.hpp"

namespace mayfly::engine {
namespace {

using parameter_server::JobLength;

constexpr std::size_t kShardAlignment = 16;  // elements
constexpr std::string_view kServerPrefix = "ps-server:";

Error wrong(const std::string& text) {
  return {Errc::kInvalidInput, text};
}

}  // namespace

std::vector<ShardRange> shard_ranges(const ReductionLayout& layout, std::uint32_t shards) {
  const std::size_t first = layout.statistics_offset();
  const std::size_t units =
      (layout.element_count() - first + kShardAlignment - 1) / kShardAlignment;
  std::vector<ShardRange> ranges;
  for (std::uint32_t i = 0; i < shards; ++i) {
    ranges.push_back(
        {first + units * i / shards * kShardAlignment,
         std::min(layout.element_count(), first + units * (i + 1) / shards * kShardAlignment)});
  }
  return ranges;
}

MicrobatchSlice PsJob::microbatches_of(const Job& job, std::uint64_t slice) const {
  const std::uint64_t slices = plan.slices_per_step();
  const std::uint64_t place = slice % slices;
  const auto first = static_cast<std::uint32_t>(job.microbatches * place / slices);
  const auto last = static_cast<std::uint32_t>(job.microbatches * (place + 1) / slices);
  return {slice / slices + 1, first, last - first};
}

double PsJob::rate_of(const Job& job, std::uint64_t committed_before,
                      std::uint32_t microbatches) const {
  const std::uint64_t step =
      std::min(committed_before / plan.slices_per_step() + 1, job.total_steps);
  const double share =
      std::min(1.0, static_cast<double>(microbatches) / static_cast<double>(job.microbatches));
  return nn::learning_rate_at(job.schedule, step) * parameter_server::rate_factor(rule, share);
}

Result<PsJob> make_ps_job(const Job& job, const ReductionLayout& layout, std::uint64_t first_step) {
  const JobConfig& config = job.config;
  JobLength length;
  length.first_step = first_step;
  length.last_step = job.total_steps;
  length.slices_per_step = slices_per_step(config);
  length.samples_per_step = config.global_batch;
  const Result<parameter_server::SyncPlan> plan =
      parameter_server::parse_phases(phases_text(config), length);
  if (!plan.ok()) {
    return plan.error();
  }
  std::set<std::uint64_t> snapshots;
  for (const std::uint64_t every : {config.checkpoint_every, job.evaluate_every_steps}) {
    for (std::uint64_t step = every; every > 0 && step < job.total_steps; step += every) {
      if (step > first_step) {
        snapshots.insert(step * length.slices_per_step);
      }
    }
  }
  const std::uint32_t shards = config.ps * config.shards;
  return PsJob{plan.value().cut_at(snapshots), std::move(snapshots),
               parameter_server::parse_rate_rule(config.lr_rule).value(), shards,
               shard_ranges(layout, shards)};
}

std::string to_text(const ServerAddress& address) {
  std::string text = fmt::format("{}{}", kServerPrefix, address.index);
  for (const std::string& shard : address.shards) {
    text += "|" + shard;
  }
  text += address.followers.empty() ? "" : "|";
  for (const std::string& follower : address.followers) {
    text += "|" + follower;
  }
  return text;
}

Result<std::optional<ServerAddress>> parse_server_address(const std::string& text) {
  if (!text.starts_with(kServerPrefix)) {
    return std::optional<ServerAddress>();
  }
  ServerAddress address;
  std::size_t end = std::min(text.find('|'), text.size());
  const char* const last = text.data() + end;
  const auto parsed = std::from_chars(text.data() + kServerPrefix.size(), last, address.index);
  while (end < text.size()) {
    const std::size_t begin = end + 1;
    end = std::min(text.find('|', begin), text.size());
    address.shards.push_back(text.substr(begin, end - begin));
  }
  const auto border = std::find(address.shards.begin(), address.shards.end(), "");
  if (border != address.shards.end()) {
    address.followers.assign(border + 1, address.shards.end());
    address.shards.erase(border, address.shards.end());
  }
  if (parsed.ec != std::errc{} || parsed.ptr != last || address.shards.empty()) {
    return wrong("not the address of a parameter server: " + text);
  }
  return std::optional(std::move(address));
}

}  // namespace mayfly::engine
