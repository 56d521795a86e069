#include "observe/served_run.hpp"

#include <algorithm>
#include <cstring>

namespace mayfly::observe {
namespace {

std::string field(const char* name, std::uint64_t value) {
  return std::string(",\"") + name + "\":" + std::to_string(value);
}

/// The length of a JSON header, the header, and blanks up to a multiple of 8 bytes.
std::string framed(std::string header) {
  header.resize((header.size() + 4 + 7) / 8 * 8 - 4, ' ');
  const auto length = static_cast<std::uint32_t>(header.size());
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header;
}

constexpr std::size_t kChangesMax = 1000;  // a page that is further behind receives everything

}  // namespace

ServedRun::ServedRun(std::unique_ptr<RunFollower> follower)
    : follower_(std::move(follower)), fact_bytes_(fact_bytes()) {
  (void)follower_->fold().take_first_changed();
}

bool ServedRun::poll() {
  if (!follower_->poll()) {
    return false;
  }
  ++version_;
  const bool anew = follower_->take_begun_anew();
  if (anew || fact_bytes() != fact_bytes_ || follower_->take_read_settings()) {
    facts_version_ = version_;
  }
  fact_bytes_ = fact_bytes();
  const std::size_t first = follower_->fold().take_first_changed();
  changes_.push_back({version_, anew ? 0 : first});
  if (changes_.size() > kChangesMax) {
    changes_.pop_front();
  }
  return true;
}

std::string ServedRun::position() const {
  return std::to_string(follower_->event_bytes()) + "-" +
         std::to_string(follower_->metric_bytes()) + "-" +
         std::to_string(follower_->member_bytes()) + (follower_->has_summary() ? "-ended" : "");
}

const std::string& ServedRun::state() {
  if (state_version_ != version_) {
    state_ = follower_->fold().state_json(follower_->name());
    state_version_ = version_;
  }
  return state_;
}

std::string ServedRun::series(std::uint64_t version, std::size_t level) {
  const Curves& kept = follower_->fold().kept();
  const Curves& undone = follower_->fold().undone();
  const std::size_t now = kept.level_for(kSeriesBucketsMax);
  const bool is_known = version > 0 && version <= version_ && level == now &&
                        (changes_.empty() || version + 1 >= changes_.front().version);
  std::size_t row = is_known ? kept.rows() : 0;
  for (const Change& change : changes_) {
    row = change.version > version ? std::min(row, change.first_row) : row;
  }
  const std::size_t first = row >> (2 * now);
  const std::size_t count = kept.buckets(now) - std::min(first, kept.buckets(now));
  const std::size_t undone_level = undone.level_for(kSeriesBucketsMax / 4);
  const std::size_t undone_count = undone.buckets(undone_level);
  std::string header = "{\"version\":" + std::to_string(version_) + field("level", now) +
                       field("first", first) + field("count", count) +
                       field("undone_level", undone_level) + field("undone_count", undone_count) +
                       "}";
  return framed(header) + kept.pack(now, first, count) + undone.pack(undone_level, 0, undone_count);
}

std::string ServedRun::detail(std::uint64_t first, std::uint64_t count) {
  const Curves& kept = follower_->fold().kept();
  const std::size_t begin = std::min<std::uint64_t>(first, kept.rows());
  const std::size_t rows = std::min<std::uint64_t>(count, kept.rows() - begin);
  std::size_t level = 0;
  while ((rows >> (2 * level)) > kDetailBucketsMax) {
    ++level;
  }
  const std::size_t bucket = begin >> (2 * level);
  const std::size_t end = std::min(kept.buckets(level), ((begin + rows) >> (2 * level)) + 1);
  return framed("{\"version\":" + std::to_string(version_) + field("level", level) +
                field("count", end - bucket) + "}") +
         kept.pack(level, bucket, end - bucket);
}

}  // namespace mayfly::observe
