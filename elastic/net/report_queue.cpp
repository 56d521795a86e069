#include "elastic/net/report_queue.hpp"

#include <utility>

namespace mayfly::elastic {

void ReportQueue::begin_job(std::uint64_t job) {
  if (job == 0) {
    return;
  }
  if (job_ != 0 && job_ != job) {
    clear();
  }
  job_ = job;
}

void ReportQueue::clear() {
  while (!reports_.empty()) {
    drop_first();
  }
}

void ReportQueue::add(Bytes payload) {
  bytes_ += payload.size();
  reports_.push_back(std::move(payload));
  while (bytes_ > bytes_max_ && reports_.size() > 1) {
    drop_first();
    ++dropped_;
  }
}

void ReportQueue::taken(std::uint64_t count) {
  const std::uint64_t last = connection_begin_ + count;
  while (first_ < last && !reports_.empty()) {
    drop_first();
  }
}

std::uint64_t ReportQueue::take_dropped() {
  return std::exchange(dropped_, 0);
}

void ReportQueue::drop_first() {
  bytes_ -= reports_.front().size();
  reports_.pop_front();
  ++first_;
}

}  // namespace mayfly::elastic
